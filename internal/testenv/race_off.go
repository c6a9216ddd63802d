//go:build !race

package testenv

// Race tells that the tests are built with the race detector, and with them the
// programs that they start from their own binary.
const Race = false
