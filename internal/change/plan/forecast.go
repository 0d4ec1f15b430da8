package plan

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/plan/clash"
	"github.com/everynode/everynode/internal/change/survey"
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
	// Variants are what each variant has of the fleet, where there are any.
	Variants []Share `json:"variants,omitempty"`
	// Found is where variants are in conflict, or fail.
	clash.Found
	Steps  []Step  `json:"steps,omitempty"`
	Images []Image `json:"images,omitempty"`
	// WaitsFor is what somebody must do before anything happens; "" where nobody needs to.
	WaitsFor string `json:"waitsFor,omitempty"`
	// Estimate is how long it takes; nil where nothing tells.
	Estimate *Estimate `json:"estimate,omitempty"`
	Warnings []string  `json:"warnings,omitempty"`

	// acts tells that pods are made or deleted before somebody is asked for anything.
	acts bool
}

// Field is one field that changes.
type Field struct {
	Path string `json:"path"`
	From string `json:"from"`
	To   string `json:"to"`
	// ReplacesPods: every pod is replaced because of it.
	ReplacesPods bool `json:"replacesPods"`
	// RunningPods: those that run are given it, where their agents can, and no pod that is ready is replaced for it.
	RunningPods bool `json:"runningPods,omitempty"`
}

// Nodes counts nodes. Each is counted once, but those of NoRoom, which are counted among the others too.
type Nodes struct {
	// Total are all of the cluster.
	Total int `json:"total"`
	// Change get another pod, or other content or amounts for theirs; New get their first one, Leave lose theirs,
	// Stay keep theirs.
	Change int `json:"change"`
	// Resize are those of Change whose pod is given other amounts as it runs, Restart those of them whose node restarts
	// containers for it.
	Resize  int `json:"resize,omitempty"`
	Restart int `json:"restart,omitempty"`
	New     int `json:"new"`
	Leave   int `json:"leave"`
	Stay    int `json:"stay"`
	// Wait are to change, to get a pod or to lose theirs, and do not: something holds them for good.
	Wait int `json:"wait,omitempty"`
	// OutOfOrder are to change or to get a pod, and cannot now.
	OutOfOrder int `json:"outOfOrder"`
	// InMaintenance are to change, to get a pod or to lose theirs when nobody works on them any more.
	InMaintenance int `json:"inMaintenance,omitempty"`
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
	Changing time.Duration `json:"changingNanoseconds"`
	Soaking  time.Duration `json:"soakingNanoseconds"`
	// Waiting is how long no window is open.
	Waiting   time.Duration `json:"waitingNanoseconds,omitempty"`
	EachBatch time.Duration `json:"eachBatchNanoseconds"`
}

// Changes reports whether anything happens: the DaemonSet is stored with another field, or pods are made or deleted
// before somebody approves, resumes or deletes anything.
func (f *Forecast) Changes() bool { return f.From == "" || len(f.Fields) > 0 || f.acts }

// planner is the work on one DaemonSet.
type planner struct {
	*play
	// old is what there is, as its author wrote it, and stored the same as it is stored.
	old, stored *appsv1.DaemonSet
	// oldRevision is the hash of the old template.
	oldRevision string
	out         *Forecast
	fates       map[string]fate
	selects     bool // the new template selects a node
	besides     []string
	// restarts is why pods are replaced to get other content, though the policy says Live.
	restarts string
}

// Make foretells what the DaemonSet, as it would be stored, would do. Old is what is stored now, nil if nothing is.
func Make(s *survey.Survey, old, new *appsv1.DaemonSet) (*Forecast, error) {
	p, err := foretell(s, old, new)
	if err != nil {
		return nil, err
	}
	return p.out, nil
}

func foretell(s *survey.Survey, old, new *appsv1.DaemonSet) (*planner, error) {
	out := &Forecast{Namespace: new.Namespace, DaemonSet: new.Name, To: "new"}
	p := &planner{fates: map[string]fate{}, out: out, stored: old}
	old, new = p.beside(s, old, new)
	p.old = old
	if old != nil && !apiequality.Semantic.DeepEqual(old.Spec, new.Spec) && new.Generation == old.Generation {
		new = new.DeepCopy()
		new.Generation++ // a server that is not asked has not counted
	}
	set, err := s.Set(new)
	if err != nil {
		return nil, err
	}
	if set.Policy != nil {
		p.out.Policy = set.Policy.Name
	}
	if old != nil {
		if err := p.compare(s, set); err != nil {
			return nil, err
		}
	}
	starts, known := startTime(s, set)
	p.play = newPlay(s, set, starts)
	if err := p.run(); err != nil {
		return nil, err
	}
	p.sortNodes()
	p.shares()
	p.clashes()
	p.table()
	p.images()
	if known && old != nil && len(p.steps) > 0 && p.steps[0].from != byHand {
		p.estimate()
	}
	p.warn()
	p.out.acts = len(p.acts) > 0
	if !p.out.acts && len(p.asked) > 0 {
		p.out.WaitsFor = p.asked[0]
	}
	return p, nil
}

// compare says which revision and fields change.
func (p *planner) compare(s *survey.Survey, set *survey.Set) error {
	unedited := s.Given()
	unedited.Edits, unedited.Holdings = nil, nil
	if s.Varied {
		unedited.Variants, unedited.Varied = s.Stored, false
	}
	before, err := survey.New(unedited).Set(p.old)
	if err != nil && s.Varied { // more than are used chose it: which it had is not said here
		unedited.Variants = nil
		before, err = survey.New(unedited).Set(p.old)
	}
	if err != nil {
		return err
	}
	p.oldRevision = before.Revision
	p.out.From = number(before, before.Revision)
	if set.Stored || before.Revision == set.Revision {
		p.out.To = number(set, set.Revision)
	}
	p.out.Fields, err = difference(p.old, set.DaemonSet)
	if err != nil {
		return err
	}
	live, why := set.Live()
	same := content.TemplateOf(before.Revision) == content.TemplateOf(set.Revision)
	p.addEdits(s.Edits[p.old.UID], set, live != nil && why == "" && same)
	if same {
		p.restarts = why
	}
	return nil
}

func number(s *survey.Set, hash string) string {
	if n := s.Numbers[hash]; n > 0 {
		return fmt.Sprint(n)
	}
	return hash
}
