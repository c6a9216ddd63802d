# Adds to each benchmark how many times slower it is than the benchmark "raw"
# of its group: BenchmarkDecode/noused than BenchmarkDecode/raw.
/^Benchmark/ {
	name = $1
	sub(/-[0-9]+$/, "", name)
	group = name
	sub(/\/[^\/]*$/, "", group)
	if (name ~ /\/raw$/) raw[group] = $3
	else if (group in raw && raw[group] > 0) $0 = $0 sprintf("\t%8.1f x raw", $3 / raw[group])
}
{ print; fflush() }
