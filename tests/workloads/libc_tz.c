/*
 * libc_tz - the C library's time zone lock: one thread reads the zone file, which is a FIFO that
 * nobody writes, and the others want the local time. The lock records no holder.
 */
#include "workload.h"

static char dir[] = "/tmp/lock-top-tz-XXXXXX";
static char zone[sizeof dir + 8];

static void setup(struct wl_scene *s)
{
    (void)s;
    wl_check(mkdtemp(dir), "mkdtemp");
    snprintf(zone, sizeof zone, ":%s/zone", dir);
    wl_check(mkfifo(zone + 1, 0600) == 0, "mkfifo");
    setenv("TZ", zone, 1);
}

static void hold(void)
{
    tzset();
}

static void waiter(int i)
{
    static atomic_bool cleaned;
    time_t now = time(NULL);
    struct tm tm;

    /* The holder has it open by now; the names are not needed any more. */
    if (!atomic_exchange(&cleaned, true)) {
        unlink(zone + 1);
        rmdir(dir);
    }
    localtime_r(&now, &tm);
    (void)i;
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "libc",
                         .class = "lock",
                         .rest = WL_OPEN,
                         .setup = setup,
                         .hold = hold,
                         .wait = waiter};
    return wl_run(argc, argv, &s);
}
