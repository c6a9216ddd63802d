#!/bin/sh
# What the action runs. Its inputs are variables, so that no text of theirs is a command.
set -eu
kept=$(mktemp -d "${RUNNER_TEMP:-${TMPDIR:-/tmp}}/nous-action-XXXXXX")
set -- prompt --ephemeral --json=result --model "$MODEL" --max-cost "$MAX_COST" --timeout "$TIMEOUT" \
	--approvals "$APPROVALS" --last-message "$kept/output"
[ -z "$SCHEMA" ] || set -- "$@" --output-schema "$SCHEMA"
status=0
printf '%s' "$PROMPT" | nous "$@" - >"$kept/result.json" || status=$?
touch "$kept/output"
end=end-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n') # no answer can have it
{
	echo "status=$status"
	echo "result=$kept/result.json"
	echo "output<<$end"
	cat "$kept/output"
	echo "$end"
} >>"$GITHUB_OUTPUT"
exit "$status"
