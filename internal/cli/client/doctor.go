package client

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/internal/cli/admin"
	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/doctor"
	"github.com/everynode/everynode/internal/doctor/diagnosis"
	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

// examination is what the doctor says.
type examination struct {
	// Looked are what was looked at.
	Looked   []string            `json:"looked"`
	Findings []diagnosis.Finding `json:"findings"`
}

func newDoctorCommand(plugin bool) *cobra.Command {
	var at *cluster
	var output string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong with this machine and its cluster, and what mends it",
		Long: `Look at this machine and at the cluster of its data directory, and say what is wrong:
versions, clocks, disks, certificates, the kernel, ports, servers, nodes, DaemonSets and
their changes, webhooks. Each finding has the command that mends it, or shows what will.
Nothing is changed.

With --kubeconfig, or KUBECONFIG, it looks at that cluster alone, which may be any
Kubernetes. The exit code is 1 if there is a problem, and 0 if there are only warnings.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("--output %s is not known; use json, or leave it out", output)
			}
			e, err := at.examine(cmd)
			if err != nil {
				return err
			}
			if output == "json" {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				err = encoder.Encode(e)
			} else {
				err = e.write(cmd.OutOrStdout())
			}
			if err != nil {
				return fmt.Errorf("write what was found: %w", err)
			}
			for _, f := range e.Findings {
				if f.Severity == diagnosis.Problem {
					return command.ExitCode(1)
				}
			}
			return nil
		},
	}
	at = addClusterFlags(cmd, plugin)
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, for programs; text for people without it")
	return cmd
}

// examine looks at the machine, if it is the one that is meant, and at the cluster.
func (c *cluster) examine(cmd *cobra.Command) (e examination, err error) {
	e.Findings = []diagnosis.Finding{}
	own := !c.plugin && *c.flags.KubeConfig == "" && (c.dataDir != "" || os.Getenv("KUBECONFIG") == "")
	dir := c.dataDir
	if dir == "" {
		dir = command.DefaultDataDir()
	}
	if own {
		e.Looked = append(e.Looked, "this machine")
		e.Findings = append(e.Findings, diagnosis.OfMachine(doctor.Machine(dir, time.Now()))...)
		if _, err := os.Stat(filepath.Join(dir, "kubeconfig")); os.IsNotExist(err) && c.dataDir == "" {
			return e, nil // A machine without a control plane.
		}
	}
	config, _, err := c.connect()
	if err != nil {
		return e, err
	}
	seen, err := doctor.Cluster(cmd.Context(), config)
	if err != nil {
		return e, err
	}
	seen.Program, seen.Kubectl = c.program(), "kubectl"
	if own {
		suffix := ""
		if c.dataDir != "" {
			suffix = " --data-dir " + c.dataDir
		}
		seen.Kubectl = "everynode kubectl" + suffix
		if seen.Unreachable == "" {
			// Where the server does not know others, that is said by the other checks.
			if list, err := admin.ListMembers(cmd.Context(), dir); err == nil {
				seen.Members = doctor.Members(list)
			}
		}
	}
	e.Looked = append(e.Looked, fmt.Sprintf("the cluster at %s (%d nodes)", config.Host, len(seen.Nodes)))
	e.Findings = append(e.Findings, diagnosis.OfCluster(seen)...)
	return e, nil
}

// write says it for people.
func (e examination) write(out io.Writer) error {
	var b strings.Builder
	problems := 0
	for _, f := range e.Findings {
		if f.Severity == diagnosis.Problem {
			problems++
		}
		// Some messages quote what others wrote.
		fmt.Fprintf(&b, "%-8s %s: %s\n         mend: %s\n", strings.ToUpper(string(f.Severity)),
			plaintext.Escape(f.Subject), plaintext.Escape(f.Message), plaintext.Escape(f.Remedy))
	}
	fmt.Fprintf(&b, "Looked at %s: %s\n", strings.Join(e.Looked, " and "), counted(problems, len(e.Findings)-problems))
	_, err := io.WriteString(out, b.String())
	return err
}

func counted(problems, warnings int) string {
	switch {
	case problems == 0 && warnings == 0:
		return "nothing is wrong."
	case problems == 0:
		return fmt.Sprintf("no problems, warnings: %d.", warnings)
	default:
		return fmt.Sprintf("problems: %d, warnings: %d.", problems, warnings)
	}
}
