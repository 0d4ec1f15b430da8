package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/dashboard"
)

func newDashboardCommand(plugin bool) *cobra.Command {
	var at *cluster
	var port int
	var noBrowser bool
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Look at the fleet in a browser",
		Long: `Open a page that shows the fleet as a map, DaemonSets and their rollouts as they
move, and why each node is where it is; rollouts are approved, paused and undone there.

The page is served on this machine only, at 127.0.0.1, and to who has the key in the
address that is printed. It sees and does what the kubeconfig may. It works on any
Kubernetes. docs/dashboard.md says more.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if port < 0 || port > 65535 {
				return fmt.Errorf("--port %d is no port; use 1 to 65535, or 0 for one that is free", port)
			}
			l, config, err := at.readWith()
			if err != nil {
				return err
			}
			d, err := dashboard.Listen(dashboard.Config{Cluster: config, Name: config.Host, Plan: l.planPasted,
				More: l.addMore}, port)
			if err != nil {
				return err
			}
			fmt.Fprintf(
				cmd.OutOrStdout(), "The page is at\n\n    %s\n\nas long as this runs. Press Ctrl-C to end it.\n", d.URL(),
			)
			if !noBrowser {
				remove, err := openBrowser(cmd.Context(), d.URL())
				if err != nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "No browser was opened: %v\n", err)
				}
				defer remove()
			}
			return d.Run(cmd.Context())
		},
	}
	at = addClusterFlags(cmd, plugin)
	f := cmd.Flags()
	f.IntVar(&port, "port", 8080, "port of the page on this machine; 0 for one that is free")
	f.BoolVar(&noBrowser, "no-browser", false, "only print the address")
	return cmd
}

// planPasted foretells what applying a manifest would do, by what the page knows.
func (l *lists) planPasted(ctx context.Context, s *survey.Survey, hidden string, manifest []byte) (forecast any,
	text string, err error) {
	m, err := parseManifests(bytes.NewReader(manifest))
	if err != nil {
		return nil, "", err
	}
	if len(m.daemonSets) == 0 {
		return nil, "", errors.New("there is no DaemonSet in it")
	}
	p, err := l.planOn(ctx, s, hidden, m)
	if err != nil {
		return nil, "", err
	}
	var out bytes.Buffer
	p.write(&out)
	return p, out.String(), nil
}

// browsers open an address.
var browsers = []string{"xdg-open", "open"}

// openBrowser opens the page by way of a file that only this user may read: what is on a
// command line can be read by all users of the machine. remove takes the file away.
func openBrowser(ctx context.Context, url string) (remove func(), err error) {
	remove = func() {}
	var program string
	for _, name := range browsers {
		if program, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		return remove, errors.New("there is no xdg-open on this machine")
	}
	dir, err := os.MkdirTemp("", "everynode-dashboard-")
	if err != nil {
		return remove, fmt.Errorf("make a folder for its address: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	file := filepath.Join(dir, "open.html")
	content := fmt.Sprintf(
		"<!doctype html><meta http-equiv=\"refresh\" content=\"0; url=%s\"><a href=\"%[1]s\">Everynode</a>\n",
		html.EscapeString(url),
	)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		return remove, fmt.Errorf("write its address: %w", err)
	}
	c := exec.CommandContext(context.WithoutCancel(ctx), program, file)
	c.Stdout, c.Stderr = io.Discard, io.Discard
	if err := c.Start(); err != nil {
		return remove, fmt.Errorf("start %s: %w", program, err)
	}
	go func() { _ = c.Wait() }()
	return remove, nil
}
