#!/bin/sh
# Says on the fifo "started" that it runs, and waits for a line on "go".
read -r request
echo '{"version":"0","type":"log","level":"info","message":"holding"}'
echo > started
read -r line < go
echo '{"version":"0","type":"done","ok":true,"summary":"held"}'
