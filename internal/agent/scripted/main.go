// Scripted is the agent of package agenttest as a program.
package main

import "noused/internal/agent/agenttest"

func main() { agenttest.Main() }
