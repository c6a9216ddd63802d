#!/bin/sh
# Counts files: a Narratoria tool (version "0") in plain sh, one process per call.
#
# The call is one JSON line on stdin. A shell has no JSON parser; as the schema in
# tally.json lets only harmless characters into "suffix", sed is enough here. With
# arguments that may hold anything, use jq or another language.

event() { # event TYPE FIELDS: prints one event
	printf '{"version":"0","type":"%s",%s}\n' "$1" "$2"
}

read -r call
suffix=$(printf '%s' "$call" | sed -n 's/.*"suffix":"\([A-Za-z0-9._-]*\)".*/\1/p')

event log '"level":"info","message":"looking through the working directory"'
if count=$(find . -type f -name "*$suffix" | wc -l); then
	count=$((count)) # some wc print spaces before the number
	event state_patch "\"patch\":{\"tally\":{\"files$suffix\":$count}}"
	event done "\"ok\":true,\"summary\":\"$count files end in '$suffix'\""
else
	event error '"errorCode":"cannot_look","errorMessage":"the working directory cannot be read"'
	event done '"ok":false,"summary":"nothing was counted"'
fi
