<?php
/* Three things that a page does: answer, hold the session while FILE is there, want the session. */
switch (parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH)) {
case '/hold':
    session_start();
    touch($_GET['file']);
    while (file_exists($_GET['file'])) {
        usleep(10000);
        clearstatcache();
    }
    break;
case '/want':
    session_start();
    break;
}
echo 'served';
