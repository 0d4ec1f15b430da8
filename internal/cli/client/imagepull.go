package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/distribution/reference"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/internal/change/prepull"
	"github.com/everynode/everynode/internal/change/rollout"
	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/node/imagepull"
	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

// chosen says on which nodes something is done.
type chosen struct {
	names    []string
	selector string
	all      bool
	parallel int
}

func (c *chosen) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&c.names, "node", nil, "name of a node; may be given more than once")
	f.StringVarP(&c.selector, "selector", "l", "", "labels of the nodes, such as disk=ssd,rack!=a")
	f.BoolVar(&c.all, "all", false, "all nodes")
	f.IntVar(&c.parallel, "parallel", 20, "how many nodes work at one time")
}

// check says whether the nodes are chosen in one way.
func (c *chosen) check() error {
	ways := 0
	for _, is := range []bool{len(c.names) > 0, c.selector != "", c.all} {
		if is {
			ways++
		}
	}
	switch {
	case ways != 1:
		return errors.New("say on which nodes, with one of --node NAME, --selector LABELS and --all")
	case c.parallel < 1:
		return fmt.Errorf("--parallel %d: must be at least 1", c.parallel)
	}
	if _, err := labels.Parse(c.selector); err != nil {
		return fmt.Errorf("--selector %q: %w", c.selector, err)
	}
	return nil
}

// find returns the names of the nodes, in order.
func (c *chosen) find(ctx context.Context, l *lists) ([]string, error) {
	list, err := l.client.CoreV1().Nodes().List(ctx,
		metav1.ListOptions{LabelSelector: c.selector, ResourceVersion: "0"})
	if err != nil {
		return nil, rollout.Unread("nodes", err)
	}
	var found []string
	for i := range list.Items {
		if name := list.Items[i].Name; len(c.names) == 0 || slices.Contains(c.names, name) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	for _, name := range c.names {
		if !slices.Contains(found, name) {
			return nil, fmt.Errorf("there is no node %q; nothing was done", name)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("there are no such nodes")
	}
	return found, nil
}

// imageCommand is a command about an image on chosen nodes.
func imageCommand(cmd *cobra.Command, work func(ctx context.Context, out io.Writer, client *prepull.Client,
	nodes []string, on *chosen, args []string) error) *cobra.Command {
	on := &chosen{}
	var at *cluster
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := on.check(); err != nil {
			return err
		}
		for _, image := range args {
			if _, err := reference.ParseNormalizedNamed(image); err != nil {
				return fmt.Errorf("%q cannot be the name of an image: %w", image, err)
			}
		}
		l, config, err := at.readWith()
		if err != nil {
			return err
		}
		nodes, err := on.find(cmd.Context(), l)
		if err != nil {
			return err
		}
		client, err := prepull.New(config)
		if err != nil {
			return err
		}
		return work(cmd.Context(), cmd.OutOrStdout(), client, nodes, on, args)
	}
	at = addClusterFlags(cmd, false)
	on.addFlags(cmd)
	return cmd
}

func NewImagePull() *cobra.Command {
	var order prepull.Order
	cmd := imageCommand(&cobra.Command{
		Use:   "pull IMAGE --all",
		Short: "Pull an image on nodes before pods need it",
		Long: `Have nodes pull an image before pods need it, and say how it goes. The nodes use their
own credentials, not those of pods. With --pin the image stays, also when a node runs
out of disk, until "everynode image unpin".

It needs the right to create nodes/proxy. The exit code is 1 if a node has no such image
then; what others pulled stays.`,
		Args: command.OneArg("an image"),
	}, func(ctx context.Context, out io.Writer, client *prepull.Client, nodes []string, on *chosen, args []string) error {
		if order.Timeout < 0 {
			return fmt.Errorf("--timeout %s: must not be negative", order.Timeout)
		}
		order.Image, order.Parallel = args[0], on.parallel
		p := &pulling{out: out, total: len(nodes), under: map[string]bool{}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			client.Pull(ctx, nodes, order, p.begins, p.ends)
		}()
		return p.watch(ctx, done)
	})
	cmd.Flags().BoolVar(&order.Pin, "pin", false, "keep the image on the nodes even if no pod uses it")
	cmd.Flags().DurationVar(&order.Timeout, "timeout", time.Hour, "how long one node may take; 0 for no limit")
	cmd.Flags().BoolVar(&order.Always, "always", false, "ask the registry even where the image is there already")
	return cmd
}

func NewImagePins() *cobra.Command {
	return imageCommand(&cobra.Command{
		Use:   "pins --all",
		Short: "List the images that nodes keep",
		Args:  command.NoArgs,
	}, func(ctx context.Context, out io.Writer, client *prepull.Client, nodes []string, on *chosen, _ []string) error {
		failed := 0
		for _, p := range client.Pins(ctx, nodes, on.parallel) {
			for _, image := range p.Images {
				fmt.Fprintf(out, "%s: %s\n", p.Node, plaintext.Line(image))
			}
			if p.Err != nil {
				failed++
				fmt.Fprintf(out, "%s: not known: %s\n", p.Node, plaintext.Line(p.Err.Error()))
			}
		}
		if failed > 0 {
			return fmt.Errorf("%d of %d nodes did not say which images they keep", failed, len(nodes))
		}
		return nil
	})
}

func NewImageUnpin() *cobra.Command {
	return imageCommand(&cobra.Command{
		Use:   "unpin IMAGE --all",
		Short: "Let nodes remove an image again once no pod uses it",
		Args:  command.OneArg("an image"),
	}, func(ctx context.Context, out io.Writer, client *prepull.Client, nodes []string, on *chosen, args []string) error {
		kept, failed := 0, 0
		client.Unpin(ctx, nodes, args[0], on.parallel, func(r prepull.Result) {
			switch {
			case r.Err != nil:
				failed++
				fmt.Fprintf(out, "%s: failed: %s\n", r.Node, plaintext.Line(r.Err.Error()))
			case r.State == imagepull.Present:
				kept++
			}
		})
		fmt.Fprintf(out, "%d of %d nodes had kept the image, and keep it no longer.\n", kept, len(nodes))
		if failed > 0 {
			return fmt.Errorf("%d of %d nodes did not answer", failed, len(nodes))
		}
		return nil
	})
}
