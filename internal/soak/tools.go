package main

// Two tools: one process for each call, and one for all.
const (
	shTool = `#!/bin/sh
call=$(cat)
case $call in *'"slow"'*) echo '{"version":"0","type":"log","level":"info","message":"slowly"}'; sleep 0.2 ;; esac
echo '{"version":"0","type":"done","ok":true,"summary":"marked"}'
`
	padTool = `#!/bin/sh
while IFS= read -r call; do
	id=${call#*'"id":'}
	id=${id%%[,\}]*}
	case $call in
	*'"initialize"'*) result='{"name":"pad","version":"1.0.0","protocolVersion":"0.0.1","operations":{"mark":{"params":{"type":"object"}}}}' ;;
	*'"shutdown"'*) result='{}' ;;
	*) result='{"success":true,"message":"padded"}' ;;
	esac
	printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
	case $call in *'"shutdown"'*) exit ;; esac
done
`
)

// texts are what the offline model is told, and so what it does.
var texts = []string{
	"a few words to say back, and no tool",
	"!sh.mark {\"token\":\"a\"}\nthen\n!sh.slow {\"token\":\"b\"}",
	"!pad.mark {\"token\":\"c\"}\n?hm",
	"!soak.echo {\"text\":\"over stdio\"}",
	"!bash {\"command\":\"seq 1 20000\"}",
	"!read {\"path\":\"notes.txt\"}\n!nowhere.x",
	"!bash {\"command\":\"true\",\"outside_sandbox\":true}",
	"please call a tool",
}
