package why

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// Style is how text is written.
type Style struct {
	// Colours is for terminals.
	Colours bool
	Now     time.Time
}

// meaning says what a verdict means, for somebody who has not read about it.
var meaning = map[string]string{
	string(standing.FailedRevision): "its revision fails there",
	string(standing.NoRoom):         "the node has no room for it, or cannot fetch its images",
	string(standing.NodeFault):      "the node itself is out of order",
	string(standing.InMaintenance):  "somebody works on the node",
	string(standing.Changing):       "its pod is being replaced or starts",
	string(standing.Waiting):        "it is to change, and waits",
	string(standing.Current):        "it has the pod that it should have",
	string(standing.NotSelected):    "it should have no pod",
}

const (
	red, yellow, green, plain = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[0m"
)

func (s Style) verdict(v string) string {
	if !s.Colours {
		return v
	}
	switch standing.Verdict(v) {
	case standing.FailedRevision, standing.NoRoom:
		return red + v + plain
	case standing.NodeFault, standing.InMaintenance, standing.Changing, standing.Waiting:
		return yellow + v + plain
	case standing.Current:
		return green + v + plain
	}
	return v
}

// Write writes the report for people.
func (r *NodeReport) Write(w io.Writer, s Style) {
	if len(r.DaemonSets) == 0 {
		fmt.Fprintf(w, "There is no DaemonSet.\n")
	}
	for i := range r.DaemonSets {
		if i > 0 {
			fmt.Fprintln(w)
		}
		r.DaemonSets[i].write(w, s)
	}
	if r.Fault != "" {
		fmt.Fprintf(w, "\n%s", survey.Wrap("Node "+r.Node+" is out of order: "+r.Fault, ""))
	}
	for _, about := range r.Maintenance {
		fmt.Fprintf(w, "\n%s", survey.Wrap("Node "+r.Node+": "+about, ""))
	}
	if r.Starting != "" {
		fmt.Fprintf(w, "\n%s", survey.Wrap("Node "+r.Node+" starts "+r.Starting, ""))
	}
	if r.NotClosed != "" {
		fmt.Fprintf(w, "\n%s", survey.Wrap("Node "+r.Node+" stayed open: "+r.NotClosed, ""))
	}
	for _, held := range r.Held {
		fmt.Fprintf(w, "\n%s", survey.Wrap(survey.Count(len(held.Pods), "pod")+" of node "+r.Node+" may not start yet: "+
			survey.Some(held.Pods)+". "+held.Why, ""))
	}
	for _, m := range r.Missing {
		fmt.Fprint(w, survey.Wrap("("+m+")", ""))
	}
}

func (p *Place) write(w io.Writer, s Style) {
	fmt.Fprintf(w, "%s/%s on %s: %s%s\n", p.Namespace, p.DaemonSet, p.Node, s.verdict(p.Verdict), s.since(p.Since))
	if len(p.Reasons) == 0 {
		fmt.Fprintf(w, "  %s\n", meaning[p.Verdict])
	}
	for _, reason := range p.Reasons {
		fmt.Fprint(w, survey.Wrap(reason, "  "))
	}
	switch {
	case p.Revision != "" && p.Wanted != "" && p.Revision != p.Wanted:
		fmt.Fprintf(w, "  has revision %s, is to have %s\n", p.Revision, p.Wanted)
	case p.Revision != "":
		fmt.Fprintf(w, "  has revision %s\n", p.Revision)
	case p.Wanted != "":
		fmt.Fprintf(w, "  has no pod, is to have revision %s\n", p.Wanted)
	}
	if p.Step != "" {
		fmt.Fprintf(w, "  belongs to step %s\n", p.Step)
	}
	if p.Pod != "" {
		fmt.Fprintf(w, "  pod %s\n", p.Pod)
	}
	if p.Variant != "" {
		fmt.Fprint(w, survey.Wrap("made by variant "+p.Variant, "  "))
	}
	list(w, "events", p.Events)
	if len(p.Log) > 0 {
		list(w, "last lines of container "+p.Container, p.Log)
	}
	for _, m := range p.Missing {
		fmt.Fprint(w, survey.Wrap("("+m+")", "  "))
	}
}

func list(w io.Writer, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "  %s:\n", title)
	for _, line := range lines {
		fmt.Fprint(w, survey.Wrap(line, "    "))
	}
}

func (s Style) since(at *time.Time) string {
	if at == nil {
		return ""
	}
	return " for " + Age(s.Now.Sub(*at))
}

// Age writes how long something has been so: one unit, or two where that says much.
func Age(d time.Duration) string {
	switch d = max(d, 0).Truncate(time.Second); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// Write writes the report for people.
func (r *SetReport) Write(w io.Writer, s Style) {
	name := r.Namespace + "/" + r.DaemonSet
	switch {
	case r.Phase != "":
		fmt.Fprint(w, survey.Wrap(name+": "+r.Phase+": "+r.Message, ""))
		for _, line := range slices.Concat(r.Content.Lines(), r.Images.Lines(), r.Fetch.Lines()) {
			fmt.Fprint(w, survey.Wrap(line, "  "))
		}
	default:
		fmt.Fprint(w, survey.Wrap(name+": "+r.summary(), ""))
	}
	if r.Policy == "" {
		fmt.Fprintf(w, "revision %s, no policy\n", r.Revision)
	} else {
		fmt.Fprint(w, survey.Wrap(r.line(), ""))
	}
	for _, unseen := range r.Unseen {
		fmt.Fprint(w, survey.Wrap(unseen, ""))
	}
	for _, g := range r.Groups {
		fmt.Fprintf(w, "\n%s %s: %s\n", survey.Number(g.Count), s.verdict(g.Verdict), meaning[g.Verdict])
		for i := range g.Nodes {
			g.Nodes[i].brief(w, s)
		}
		if more := g.Count - len(g.Nodes); more > 0 && g.Verdict != string(standing.Current) &&
			g.Verdict != string(standing.NotSelected) {
			fmt.Fprintf(w, "  and %s more (--verdict %s lists all)\n", survey.Number(more), g.Verdict)
		}
	}
	if len(r.Groups) == 0 {
		fmt.Fprintf(w, "\nNo node has that verdict.\n")
	}
	for _, m := range r.Missing {
		fmt.Fprint(w, "\n"+survey.Wrap("("+m+")", ""))
	}
}

// line says which policy is followed, and from where to where.
func (r *SetReport) line() string {
	text := "policy " + r.Policy
	if r.Step != "" {
		text += ", step " + r.Step
	}
	switch {
	case r.Target == "":
		text += "; its rollout is not known yet"
	case r.Stable == r.Target:
		text += ", revision " + r.Target
	case r.Stable == "":
		text += ", first revision " + r.Target
	default:
		text += ", from revision " + r.Stable + " to " + r.Target
	}
	return text
}

// summary says how many nodes are as they should be.
func (r *SetReport) summary() string {
	current, wrong := 0, 0
	for _, g := range r.Groups {
		switch standing.Verdict(g.Verdict) {
		case standing.Current:
			current = g.Count
		case standing.NotSelected:
		default:
			wrong += g.Count
		}
	}
	return fmt.Sprintf("%s of %s are as they should be", survey.Number(current), survey.Count(current+wrong, "node"))
}

// brief is one node of a group: its name and the reason that decided.
func (p *Place) brief(w io.Writer, s Style) {
	text := p.Node
	if p.Since != nil {
		text += ", for " + Age(s.Now.Sub(*p.Since))
	}
	if len(p.Reasons) > 0 {
		text += ": " + p.Reasons[0]
	}
	fmt.Fprint(w, survey.Wrap(text, "  "))
}
