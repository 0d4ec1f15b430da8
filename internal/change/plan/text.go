package plan

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/change/survey"
)

// shownLacks is how many nodes without room are named for each step.
const shownLacks = 3

// Write writes the forecast for people.
func (f *Forecast) Write(w io.Writer) {
	name := "DaemonSet " + f.Namespace + "/" + f.DaemonSet
	switch {
	case f.From == "":
		fmt.Fprintf(w, "%s   is new\n", name)
	case !f.Changes() && f.WaitsFor == "":
		fmt.Fprintf(w, "%s   revision %s: nothing changes\n", name, f.From)
		f.tail(w)
		return
	case !f.Changes():
		fmt.Fprintf(w, "%s   revision %s: nothing changes before %s\n", name, f.From, f.WaitsFor)
	case f.To == f.From:
		fmt.Fprintf(w, "%s   revision %s stays\n", name, f.From)
	default:
		fmt.Fprintf(w, "%s   revision %s -> %s\n", name, f.From, f.To)
	}
	for _, field := range f.Fields {
		f.field(w, field)
	}
	fmt.Fprintln(w, f.Nodes.String())
	f.variants(w)
	f.table(w)
	f.tail(w)
}

func (f *Forecast) field(w io.Writer, field Field) {
	value := func(s string) string {
		if s == "" {
			return "(none)"
		}
		return s
	}
	line := fmt.Sprintf("%s: %s -> %s", field.Path, value(field.From), value(field.To))
	if field.ReplacesPods {
		line += " (replaces every pod)"
	}
	if field.RunningPods {
		line += " (given to running pods)"
	}
	fmt.Fprint(w, survey.Wrap(line, "  "))
}

// how says which nodes that change need no other pod.
func (n Nodes) how() string {
	switch {
	case n.Resize == 0:
		return ""
	case n.Restart == 0:
		return fmt.Sprintf(" (%s resized)", survey.Number(n.Resize))
	}
	return fmt.Sprintf(" (%s resized, %s of them restarted)", survey.Number(n.Resize), survey.Number(n.Restart))
}

// String says what becomes of the nodes.
func (n Nodes) String() string {
	var parts []string
	add := func(count int, text string) {
		if count > 0 {
			parts = append(parts, survey.Number(count)+" "+text)
		}
	}
	add(n.Change, "change"+n.how())
	add(n.New, "new")
	add(n.Leave, "leave")
	add(n.Stay, "stay")
	add(n.Wait, "wait")
	add(n.OutOfOrder, "out of order")
	add(n.InMaintenance, "in maintenance")
	add(n.NoRoom, "of these without room")
	if len(parts) == 0 {
		parts = []string{"none is selected"}
	}
	return survey.Count(n.Total, "node") + ": " + strings.Join(parts, ", ")
}

func (f *Forecast) table(w io.Writer) {
	if len(f.Steps) == 0 {
		return
	}
	width, leave := len("step"), 0
	for _, s := range f.Steps {
		width, leave = max(width, len(s.Name)), leave+s.Leave
	}
	row := func(step, nodes, leaves, atOnce, noRoom, from string) {
		if leave > 0 {
			nodes = fmt.Sprintf("%7s  %7s", nodes, leaves)
		}
		fmt.Fprintf(w, "  %-*s  %7s  %7s  %7s  %s\n", width, step, nodes, atOnce, noRoom, from)
	}
	row("step", "nodes", "leave", "at once", "no room", "from")
	for _, s := range f.Steps {
		atOnce := survey.Number(s.AtOnce)
		if s.AtOnce == 0 {
			atOnce = "-"
		}
		row(s.Name, survey.Number(s.Nodes), survey.Number(s.Leave), atOnce, survey.Number(len(s.NoRoom)), s.From)
	}
	for _, s := range f.Steps {
		for _, lack := range s.NoRoom[:min(shownLacks, len(s.NoRoom))] {
			fmt.Fprint(w, survey.Wrap("No room on "+lack.Node+" ("+s.Name+"): "+strings.Join(lack.Reasons, "; "), ""))
		}
		if more := len(s.NoRoom) - shownLacks; more > 0 {
			fmt.Fprintf(w, "No room on %s more of step %s (-o json lists all)\n", survey.Number(more), s.Name)
		}
	}
}

// tail is what follows on the table.
func (f *Forecast) tail(w io.Writer) {
	f.Found.Write(w)
	for _, i := range f.Images {
		line := fmt.Sprintf("Image %s is on %s of %s.", i.Image, survey.Number(i.On), survey.Count(i.Of, "node"))
		fmt.Fprint(w, survey.Wrap(line, ""))
	}
	if e := f.Estimate; e != nil {
		var parts []string
		for _, part := range []struct {
			time time.Duration
			what string
		}{{e.Changing, "of changing"}, {e.Soaking, "of soaking"}, {e.Waiting, "outside of windows"}} {
			if part.time >= time.Second {
				parts = append(parts, roughly(part.time)+" "+part.what)
			}
		}
		if len(parts) > 0 {
			line := "About " + strings.Join(parts, " and ") + ", by how long its pods took to start"
			fmt.Fprint(w, survey.Wrap(fmt.Sprintf("%s (%s for each batch).", line, roughly(e.EachBatch)), ""))
		}
	}
	for _, warning := range f.Warnings {
		fmt.Fprint(w, survey.Wrap("Warning: "+warning, ""))
	}
}

// roughly writes a duration in one unit.
func roughly(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Round(time.Second).Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Round(time.Minute).Minutes()))
	}
	return fmt.Sprintf("%d h", int(d.Round(time.Hour).Hours()))
}

// short writes a duration without parts that are nothing: "10m", not "10m0s".
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
