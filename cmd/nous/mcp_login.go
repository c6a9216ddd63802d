package main

import "github.com/spf13/cobra"

// mcpLoginCommand and mcpLogoutCommand are done by the daemon's own program, which
// keeps what is granted.
func (a *app) mcpLoginCommand() *cobra.Command {
	return a.handedOn("login NAME", "Log in at an MCP server in a browser: noused mcp login", "mcp", "login")
}

func (a *app) mcpLogoutCommand() *cobra.Command {
	return a.handedOn("logout NAME", "Take a login at an MCP server back: noused mcp logout", "mcp", "logout")
}
