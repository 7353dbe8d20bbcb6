"""BusyBox: a server of one thread."""

import urllib.request

from promises import check_idle


def test_idle_web_server(find, serve, observe, free_port, tmp_path):
    (tmp_path / "page").write_text("served")
    address = f"127.0.0.1:{free_port}"

    def get():
        try:
            with urllib.request.urlopen(f"http://{address}/page", timeout=5) as answer:
                return answer.read().decode()
        except OSError:
            return None

    command = [find("busybox"), "httpd", "-f", "-p", address, "-h", tmp_path]
    server = serve(command, lambda: get() == "served")
    check_idle(observe, server.pid)
    assert get() == "served"
