"""What is measured: each file is run in a fresh process, gets one JSON object and prints one."""
