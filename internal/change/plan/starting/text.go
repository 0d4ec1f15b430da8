package starting

import (
	"fmt"
	"io"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
)

// shownStarts is how many nodes that start are named.
const shownStarts = 3

// Write writes the forecast for people.
func (f *Forecast) Write(w io.Writer) {
	state := "nothing changes"
	switch {
	case f.New:
		state = "is new"
	case f.Changed:
		state = "changes"
	}
	fmt.Fprintf(w, "NodeStartup %s   %s\n", f.NodeStartup, state)
	fmt.Fprint(w, survey.Wrap(f.sentence(), ""))
	f.table(w)
	for i := range f.Starting {
		if i == shownStarts {
			fmt.Fprintf(w, "  and %s more that start now\n", survey.Number(len(f.Starting)-shownStarts))
			break
		}
		fmt.Fprint(w, survey.Wrap(f.Starting[i].String(), "  "))
	}
	for _, never := range f.Never {
		fmt.Fprint(w, survey.Wrap("Never opens: "+never+".", ""))
	}
	for _, warning := range f.Warnings {
		fmt.Fprint(w, survey.Wrap("Warning: "+warning+".", ""))
	}
}

// sentence says which nodes and pods it concerns.
func (f *Forecast) sentence() string {
	text := fmt.Sprintf("%s: %s would follow it when they join, or when their machine starts again; none is closed now.",
		survey.Count(f.Nodes.Total, "node"), survey.Number(f.Nodes.Follow))
	if f.Pods.Ordinary > 0 {
		text += fmt.Sprintf(" %s on them would wait for the groups after a start of their machine, for two minutes at most.",
			survey.Count(f.Pods.Ordinary, "pod"))
	}
	return text
}

func (f *Forecast) table(w io.Writer) {
	width := len("daemon set")
	for _, g := range f.Groups {
		for _, d := range g.DaemonSets {
			width = max(width, len(d.Namespace)+1+len(d.Name))
		}
	}
	row := func(group, name, nodes, available, then string) {
		fmt.Fprintf(w, "  %5s  %-*s  %7s  %9s  %s\n", group, width, name, nodes, available, then)
	}
	row("group", "daemon set", "nodes", "available", "waits")
	for i, g := range f.Groups {
		for j, d := range g.DaemonSets {
			group, waits := "", ""
			if j == 0 {
				group, waits = fmt.Sprint(i+1), g.waits()
			}
			row(group, d.Namespace+"/"+d.Name, survey.Number(d.Nodes), survey.Number(d.Available), waits)
		}
	}
}

// waits says how long a group is waited for.
func (g *Group) waits() string {
	switch {
	case g.Timeout == "":
		return "as long as it takes"
	case g.Then == string(v1alpha1.ThenOpen):
		return g.Timeout + ", then goes on"
	}
	return "as long as it takes; says so after " + g.Timeout
}

// String says what becomes of a node that starts.
func (s *Start) String() string {
	switch {
	case s.To == 0:
		return fmt.Sprintf("%s is at group %d, and would open at once", s.Node, s.From)
	case s.To != s.From:
		return fmt.Sprintf("%s is at group %d, and would go to group %d; it waits for %s", s.Node, s.From, s.To, s.Waits)
	}
	return fmt.Sprintf("%s is at group %d, and waits for %s", s.Node, s.From, s.Waits)
}
