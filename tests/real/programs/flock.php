<?php
/* flock.php FILE - locks it, or waits for it, says so and keeps it until stdin ends. */
$file = fopen($argv[1], 'c');
echo json_encode(['tried' => true]), "\n";
flock($file, LOCK_EX);
echo json_encode(['got' => true]), "\n";
fgets(STDIN);
