package plan

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/internal/survey"
)

// Forecast is what applying one DaemonSet would do.
type Forecast struct {
	Namespace string `json:"namespace"`
	DaemonSet string `json:"daemonSet"`
	// From is the revision that it has, "" for a new DaemonSet. To is the one that it gets: "new", or that of before whose
	// template it is.
	From   string  `json:"from,omitempty"`
	To     string  `json:"to"`
	Policy string  `json:"policy,omitempty"`
	Fields []Field `json:"fields,omitempty"`
	Nodes  Nodes   `json:"nodes"`
	Steps  []Step  `json:"steps,omitempty"`
	Images []Image `json:"images,omitempty"`
	// Estimate is how long it takes; nil where nothing tells.
	Estimate *Estimate `json:"estimate,omitempty"`
	Warnings []string  `json:"warnings,omitempty"`
}

// Field is one field that changes.
type Field struct {
	Path string `json:"path"`
	From string `json:"from"`
	To   string `json:"to"`
	// ReplacesPods: every pod is replaced because of it.
	ReplacesPods bool `json:"replacesPods"`
}

// Nodes counts nodes. Each is counted once, but those of NoRoom, which are counted among the others too.
type Nodes struct {
	// Total are all of the cluster.
	Total int `json:"total"`
	// Change get another pod, New their first one, Leave lose theirs, Stay keep theirs.
	Change int `json:"change"`
	New    int `json:"new"`
	Leave  int `json:"leave"`
	Stay   int `json:"stay"`
	// OutOfOrder are to change or to get a pod, and cannot now.
	OutOfOrder int `json:"outOfOrder"`
	// NoRoom are those of Change and New that have no room for the pod.
	NoRoom int `json:"noRoom"`
}

// Step is a part of the fleet that is changed together.
type Step struct {
	Name  string `json:"name"`
	Nodes int    `json:"nodes"`
	// Leave is how many of them lose their daemon.
	Leave int `json:"leave,omitempty"`
	// AtOnce is how many at most are without an available pod, or have two; 0 where somebody must delete the pods.
	AtOnce int    `json:"atOnce"`
	NoRoom []Lack `json:"noRoom,omitempty"`
	// From says what it waits for.
	From string `json:"from"`

	soak time.Duration
}

// Lack is a node without room, with all that is short.
type Lack struct {
	Node    string   `json:"node"`
	Reasons []string `json:"reasons"`
}

// Image is an image that is new, and how many of the nodes have it.
type Image struct {
	Image string `json:"image"`
	On    int    `json:"on"`
	Of    int    `json:"of"`
}

// Estimate is how long a change takes.
type Estimate struct {
	Changing  time.Duration `json:"changingNanoseconds"`
	Soaking   time.Duration `json:"soakingNanoseconds"`
	EachBatch time.Duration `json:"eachBatchNanoseconds"`
}

// Changes tells whether anything would be different.
func (f *Forecast) Changes() bool {
	return f.From == "" || len(f.Fields) > 0 || f.Nodes.Change+f.Nodes.New+f.Nodes.Leave > 0
}

// nodeOf is what becomes of one node.
type nodeOf uint8

const (
	ignored nodeOf = iota
	changes
	joins
	leaves
	stays
	outOfOrder
)

// planner is the work on one DaemonSet.
type planner struct {
	survey   *survey.Survey
	old, new *appsv1.DaemonSet
	view     *survey.View // of the new one
	out      *Forecast
	of       map[string]nodeOf
	lacking  map[string][]string
	// escapes is the policy that the new one leaves together with its template.
	escapes string
}

// Make foretells what the DaemonSet, as it would be stored, would do. Old is what is stored now, nil if nothing is.
func Make(s *survey.Survey, old, new *appsv1.DaemonSet) (*Forecast, error) {
	p := &planner{
		survey: s, old: old, new: new, of: map[string]nodeOf{}, lacking: map[string][]string{},
		out: &Forecast{Namespace: new.Namespace, DaemonSet: new.Name, To: "new"},
	}
	var err error
	if p.view, err = s.View(new); err != nil {
		return nil, err
	}
	if p.view.Policy != nil {
		p.out.Policy = p.view.Policy.Name
	}
	var before *survey.View
	if old != nil {
		if before, err = s.View(old); err != nil {
			return nil, err
		}
		p.out.From = number(before, before.Revision)
		if p.out.Fields, err = difference(old, new); err != nil {
			return nil, err
		}
		if p.view.Known {
			p.out.To = number(p.view, p.view.Revision)
		}
		if before.Policy != nil && p.view.Policy == nil && !p.onDelete() && before.Revision != p.view.Revision {
			p.escapes = before.Policy.Name
		}
	}
	p.sortNodes(before)
	p.steps()
	p.images()
	p.estimate()
	p.warn()
	return p.out, nil
}

func number(v *survey.View, hash string) string {
	if n := v.Numbers[hash]; n > 0 {
		return fmt.Sprint(n)
	}
	return hash
}
