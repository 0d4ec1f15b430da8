package client

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rollout"
	"github.com/everynode/everynode/internal/cli/command"
)

func newRolloutCommand(plugin bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Look at the change of a DaemonSet under a policy, and steer it",
		Long: `Look at the change of a DaemonSet under a RolloutPolicy, and steer it. The verbs
write into the spec of its DaemonSetRollout, which needs the right to update
daemonsetrollouts; the role admin of a namespace has it.`,
	}
	command.Group(cmd)
	c := addClusterFlags(cmd, plugin)
	cmd.AddCommand(newRolloutStatusCommand(c), newApproveCommand(c),
		newRolloutVerb(c, "pause", "Change no further node", rollout.Pause),
		newRolloutVerb(c, "resume", "Go on after a pause", rollout.Resume),
		newRevisionVerb(c, "retry", "Try a failed revision again", rollout.Retry),
		newRevisionVerb(c, "abort", "Take all nodes back to the stable revision", rollout.Abort))
	return cmd
}

// newRevisionVerb makes a command that changes the rollout's spec for the sake of one revision.
func newRevisionVerb(c *cluster, name, short string, of func(revision string) rollout.Verb) *cobra.Command {
	var revision string
	cmd := newRolloutVerb(c, name, short, nil)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.do(cmd, args[0], of(revision)) }
	cmd.Flags().StringVar(&revision, "revision", "",
		name+" only if the change is to this revision, by its name or its digest")
	return cmd
}

// newRolloutVerb makes a command that changes the rollout's spec.
func newRolloutVerb(c *cluster, name, short string, do rollout.Verb) *cobra.Command {
	return &cobra.Command{
		Use: name + " daemonset/NAME", Short: short, Args: command.OneArg("a DaemonSet, such as daemonset/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.do(cmd, args[0], do) },
	}
}

func newApproveCommand(c *cluster) *cobra.Command {
	var (
		step, revision, placement string
		change                    int64
		all                       bool
	)
	cmd := &cobra.Command{
		Use: "approve daemonset/NAME", Short: "Let the next step begin",
		Args: command.OneArg("a DaemonSet, such as daemonset/NAME"),
		Long: `Let the next step begin. An approval is for one change: when the template changes, or
a failed revision is tried again, it is void, also if the same revision comes once more.
--revision and --change approve only if the change is still to that revision, and has
that number (.change of rollout status -o json), so that nobody approves what they have
not seen.

Beside another DaemonSet controller nodes are chosen by the newest template at once.
A write that changes that is refused until the placement it names is approved with
--placement.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case placement != "" && (all || step != "" || revision != "" || change != 0):
				return fmt.Errorf("--placement goes with no other flag; %s", command.SeeHelp(cmd))
			case placement != "":
				return c.do(cmd, args[0], rollout.ApprovePlacement(placement))
			case all && step != "":
				return fmt.Errorf("--all and --step exclude each other; %s", command.SeeHelp(cmd))
			case all:
				step = v1alpha1.AllSteps
			}
			return c.do(cmd, args[0], rollout.Approve(step, revision, change))
		},
	}
	cmd.Flags().StringVar(&step, "step", "",
		"approve up to this step, in advance if need be; WithoutPolicy lets a change go on whose policy is gone")
	cmd.Flags().BoolVar(&all, "all", false, "approve every step")
	cmd.Flags().StringVar(&placement, "placement", "",
		"approve the placement that a refused write names, as sha256:...")
	cmd.Flags().StringVar(&revision, "revision", "",
		"approve only if the change is to this revision, by its name or its digest")
	cmd.Flags().Int64Var(&change, "change", 0, "approve only if this is the number of the change")
	return cmd
}

// do changes a rollout by a verb, and says what that does.
func (c *cluster) do(cmd *cobra.Command, which string, verb rollout.Verb) error {
	client, err := c.rolloutOf(which)
	if err != nil {
		return err
	}
	done, err := client.Do(cmd.Context(), verb)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", client, done)
	return nil
}

// rolloutOf reaches the rollout of what is named as daemonset/NAME.
func (c *cluster) rolloutOf(which string) (*rollout.Client, error) {
	kind, name, ok := strings.Cut(which, "/")
	if !ok || name == "" || !slices.Contains([]string{"daemonset", "daemonsets", "ds", "daemonset.apps",
		"daemonsets.apps"}, kind) {
		return nil, fmt.Errorf("%q is no DaemonSet; name one as daemonset/NAME", which)
	}
	config, namespace, err := c.connect()
	if err != nil {
		return nil, err
	}
	return rollout.NewClient(config, namespace, name)
}

func newRolloutStatusCommand(c *cluster) *cobra.Command {
	var (
		watch  bool
		format string
		limit  time.Duration
	)
	cmd := &cobra.Command{
		Use: "status daemonset/NAME", Short: "Show where the change is, and follow it",
		Args: command.OneArg("a DaemonSet, such as daemonset/NAME"),
		Long: `Show where the change is, and follow it until nothing more will happen by itself:
it is Complete (exit code 0), Halted or RolledBack (exit code 1). With -o json the
state is one line of JSON, and --watch gives one for each change.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "" && format != "json" {
				return fmt.Errorf("-o %s is not known; use json, or leave it out", format)
			}
			client, err := c.rolloutOf(args[0])
			if err != nil {
				return err
			}
			ctx, stop := cmd.Context(), func() {}
			if limit > 0 {
				ctx, stop = context.WithTimeout(ctx, limit)
			}
			defer stop()
			out := cmd.OutOrStdout()
			terminal := command.IsTerminal(out)
			s := rollout.Status{
				View:   rollout.View{Width: 80, Program: c.program(), Colours: terminal && os.Getenv("NO_COLOR") == ""},
				Follow: watch, Terminal: terminal && format == "", JSON: format == "json", Out: out,
			}
			if f, ok := out.(*os.File); ok && terminal {
				if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 20 {
					s.Width = width
				}
			}
			if s.JSON && !cmd.Flags().Changed("watch") {
				s.Follow = false
			}
			return s.Run(ctx, client)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", true, "follow the change until its end")
	cmd.Flags().StringVarP(&format, "output", "o", "", "json, for programs")
	cmd.Flags().DurationVar(&limit, "timeout", 0, "follow no longer than this (default: no limit)")
	return cmd
}
