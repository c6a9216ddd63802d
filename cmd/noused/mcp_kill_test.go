package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// forkingServer is an MCP server that starts two processes which want to outlive it,
// one in a session of its own, one whose parent is gone, and says which.
const forkingServer = `#!/bin/sh
mkfifo f.$$ g.$$
setsid sh -c 'echo $$ >$0; exec sleep 1000' f.$$ & read one <f.$$
(setsid sh -c 'sh -c "echo \$\$ >$0; exec sleep 1000 </dev/null >/dev/null 2>&1" &' g.$$ &); read two <g.$$
rm f.$$ g.$$
while IFS= read -r line; do
	id=${line#*'"id":'}
	id=${id%%[,\}]*}
	case $line in
	*'"initialize"'*) result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"forks","version":"1"}}' ;;
	*'"tools/list"'*) result='{"tools":[{"name":"pids","inputSchema":{"type":"object"}}]}' ;;
	*'"tools/call"'*) result='{"content":[{"type":"text","text":"'"$$ $one $two"'"}]}' ;;
	*'"ping"'*) result='{}' ;;
	*) continue ;;
	esac
	printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
`

// Nothing of an MCP server outlives a daemon that is killed, wherever it has gone.
// NOUSED_LONG kills 20 daemons.
func TestNothingOfAServerOutlivesAKilledDaemon(t *testing.T) {
	kills := 2
	if os.Getenv("NOUSED_LONG") != "" {
		kills = 20
	}
	d := unstarted(t, "noused")
	d.write("tools/forks.sh", forkingServer, 0o700)
	for i := range 3 {
		d.write(fmt.Sprintf("tools/forks%d.json", i), fmt.Sprintf(
			`{"name":"forks%d","kind":"tool","protocol":"mcp","cwd":"session","capabilities":[],"transport":{"type":"stdio","command":["./forks.sh"]}}`, i), 0o600)
	}
	for range kills {
		d.Start()
		session, pids := d.session(""), map[int]bool{}
		for i := range 3 {
			r := d.extension(session, fmt.Sprintf("forks%d.pids", i), `{}`)
			for word := range strings.FieldsSeq(r.Result) {
				pid, err := strconv.Atoi(word)
				if err != nil || !r.OK {
					t.Fatalf("got %+v", r)
				}
				pids[pid] = true
			}
		}
		if len(pids) != 9 {
			t.Fatalf("got processes %v, want nine", pids)
		}
		d.Kill()
		for pid := range pids {
			if !ended(t, pid, hangTime) {
				t.Errorf("process %d outlives the daemon", pid)
			}
		}
	}
}
