package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/why"
	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

// logLines is how many of a failed container's last lines are shown.
const logLines = 5

// Of a log at most logBytes are read, and of one line lineBytes shown.
const (
	logBytes  = 4 << 20
	lineBytes = 1000
)

func newWhyCommand(plugin bool) *cobra.Command {
	var at *cluster
	var output, verdict string
	cmd := &cobra.Command{
		Use:   "why NODE [daemonset/NAME] | daemonset/NAME",
		Short: "Say why a node has, or lacks, the pod of a DaemonSet",
		Long: `Say why a node is where it is: for each DaemonSet, whether the node is to have it,
what it waits for, and whose fault it is if something is wrong. For a DaemonSet, the
same for all nodes together.

It reads the API and writes nothing, and works on any Kubernetes. docs/why.md
explains the words and the JSON.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := askedFor(args, output, verdict)
			if err != nil {
				return err
			}
			l, err := at.read()
			if err != nil {
				return err
			}
			report, err := l.why(cmd.Context(), q)
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), report, output)
		},
	}
	at = addClusterFlags(cmd, plugin)
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", "", "json for programs; else text for people")
	f.StringVar(&verdict, "verdict", "", "of a DaemonSet, list all nodes with this verdict: "+verdictNames())
	return cmd
}

func verdictNames() string {
	var names []string
	for _, v := range why.Verdicts {
		names = append(names, string(v))
	}
	return strings.Join(names, ", ")
}

// question is what "everynode why" is asked: about a node, a DaemonSet, or both.
type question struct {
	node, daemonSet string
	verdict         standing.Verdict
}

func askedFor(args []string, output, verdict string) (question, error) {
	q, err := askedAbout(args)
	if err != nil {
		return q, err
	}
	if output != "" && output != "json" {
		return q, fmt.Errorf("--output %s is not known; use json, or leave it out", output)
	}
	q.verdict = standing.Verdict(verdict)
	if verdict != "" && !slices.Contains(why.Verdicts, q.verdict) {
		return q, fmt.Errorf("--verdict %s is not known; use one of %s", verdict, verdictNames())
	}
	if verdict != "" && q.node != "" {
		return q, fmt.Errorf("--verdict is about all nodes of a DaemonSet; leave out %s", q.node)
	}
	return q, nil
}

// askedAbout reads the names.
func askedAbout(args []string) (q question, err error) {
	for _, arg := range args {
		kind, name, isSet := strings.Cut(arg, "/")
		switch {
		case isSet && !slices.Contains([]string{"daemonset", "daemonsets", "ds", "daemonset.apps", "daemonsets.apps"},
			kind):
			return q, fmt.Errorf("%q is neither a node nor a DaemonSet; write NODE or daemonset/NAME", arg)
		case isSet && (name == "" || q.daemonSet != ""), !isSet && (arg == "" || q.node != ""):
			return q, fmt.Errorf("%q: name one node, one DaemonSet as daemonset/NAME, or one of each",
				strings.Join(args, " "))
		case isSet:
			q.daemonSet = name
		default:
			q.node = arg
		}
	}
	return q, nil
}

// report is what can be shown.
type report interface {
	Write(w io.Writer, s why.Style)
}

func (l *lists) why(ctx context.Context, q question) (report, error) {
	s, hidden, err := l.look(ctx)
	if err != nil {
		return nil, err
	}
	var ds *appsv1.DaemonSet
	if q.daemonSet != "" {
		if ds = s.DaemonSet(l.namespace, q.daemonSet); ds == nil {
			return nil, noSuchSet(s, l.namespace, q.daemonSet)
		}
	}
	if q.node == "" {
		r, err := why.Set(s, ds, q.verdict)
		if err == nil && hidden != "" {
			r.Missing = append(r.Missing, hidden)
		}
		return r, err
	}
	r, err := why.Node(s, q.node, ds)
	if err != nil {
		return nil, err
	}
	if hidden != "" {
		r.Missing = append(r.Missing, hidden)
	}
	for i := range r.DaemonSets {
		l.addMore(ctx, &r.DaemonSets[i])
	}
	return r, nil
}

// noSuchSet says where DaemonSets of that name are, if there are any.
func noSuchSet(s *survey.Survey, namespace, name string) error {
	for _, ds := range s.DaemonSets {
		if ds.Name == name {
			return fmt.Errorf("there is no DaemonSet %q in namespace %q, but there is one in %q; name it with -n", name,
				namespace, ds.Namespace)
		}
	}
	return fmt.Errorf("there is no DaemonSet %q in namespace %q", name, namespace)
}

// addMore adds the events of the pod and the last lines of a container that failed. What cannot be read is said.
func (l *lists) addMore(ctx context.Context, p *why.Place) {
	events, log := p.AsksForMore()
	if events {
		if list, err := l.events(ctx, p.Namespace, p.Pod, p.PodUID); err != nil {
			p.Missing = append(p.Missing, err.Error())
		} else {
			p.AddEvents(list)
		}
	}
	if !log {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	lines, most := int64(logLines), int64(logBytes)
	text, err := l.client.CoreV1().Pods(p.Namespace).GetLogs(p.Pod, &corev1.PodLogOptions{
		Container: p.Container, Previous: p.Restarted, TailLines: &lines, LimitBytes: &most,
	}).DoRaw(ctx)
	if err != nil {
		p.Missing = append(p.Missing, fmt.Sprintf("the log of container %s cannot be read: %v", p.Container, err))
		return
	}
	if trimmed := strings.TrimRight(string(text), "\n"); trimmed != "" {
		for line := range strings.SplitSeq(trimmed, "\n") {
			p.Log = append(p.Log, plaintext.Cut(line, lineBytes, " ..."))
		}
	}
}

func show(w io.Writer, r report, output string) error {
	if output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	r.Write(w, why.Style{Colours: command.IsTerminal(w), Now: time.Now()})
	return nil
}
