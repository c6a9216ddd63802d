package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"noused/internal/cmdline"
	"noused/internal/fleet"
)

// fleetFlags say where the fleet is.
type fleetFlags struct{ via, creds, nkey, ca, subject string }

func (a *app) fleetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Give jobs to the daemons of a fleet, and see what becomes of them",
		Long: `Give jobs to the daemons of a fleet, and see what becomes of them. The daemons meet
at a NATS server, which --via or NOUS_VIA names. A daemon is in the fleet that
[fleet] of its configuration names.`,
		Example: `  nous fleet submit --label gpu=a100 --wait run the benchmark and sum it up
  nous fleet jobs
  nous fleet cancel j-4kq7`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cmdline.Unknown(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&a.fleetAt.via, "via", "", "the NATS `servers`, with commas between them: nats://, tls:// or wss://; also NOUS_VIA")
	flags.StringVar(&a.fleetAt.creds, "creds", "", "the `file` with the JWT and the key that they let you in with")
	flags.StringVar(&a.fleetAt.nkey, "nkey", "", "the `file` with the seed of an nkey, instead of --creds")
	flags.StringVar(&a.fleetAt.ca, "ca", "", "the `file` of certificates that they are checked with, instead of the system's")
	flags.StringVar(&a.fleetAt.subject, "subject", string(fleet.DefaultPrefix), "what the fleet's subjects begin with, a `name`")
	cmd.AddCommand(a.fleetSubmitCommand(), a.fleetJobsCommand(), a.fleetCancelCommand())
	return cmd
}

// fleetWay is how to connect to the fleet that is meant.
func (a *app) fleetWay() (c fleet.Connect, prefix fleet.Prefix, err error) {
	f := a.fleetAt
	via := f.via
	if via == "" {
		via = os.Getenv("NOUS_VIA")
	}
	if via == "" {
		return c, "", cmdline.Errorf("no fleet is named: give its NATS server with --via or NOUS_VIA, as in --via nats://box:4222")
	}
	for _, u := range strings.Split(via, ",") {
		u = strings.TrimSpace(u)
		if err := fleet.CheckURL(u); err != nil {
			return c, "", cmdline.Errorf("--via: %v", err)
		}
		c.URLs = append(c.URLs, u)
	}
	if err := fleet.CheckPrefix(f.subject); err != nil {
		return c, "", cmdline.Errorf("--subject: %v", err)
	}
	for _, file := range []struct {
		given string
		to    *string
	}{{f.creds, &c.Creds}, {f.nkey, &c.NKey}, {f.ca, &c.CA}} {
		if file.given != "" {
			if *file.to, err = filepath.Abs(file.given); err != nil {
				return c, "", err
			}
		}
	}
	return c, fleet.Prefix(f.subject), nil
}
