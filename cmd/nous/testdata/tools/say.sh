#!/bin/sh
read -r request
case $request in
*'"text":"bad"'*) echo '{"version":"0","type":"done","ok":false,"summary":"a bad word"}' ;;
*'"text":"hi"'*) echo '{"version":"0","type":"done","ok":true,"summary":"said \"text\":\"hi\""}' ;;
esac
