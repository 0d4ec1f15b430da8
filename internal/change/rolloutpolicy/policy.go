package rolloutpolicy

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
)

// Policy is a RolloutPolicy's spec, checked, with its defaults, and ready to be
// asked. It does not change.
type Policy struct {
	// Selector chooses DaemonSets by their labels.
	Selector labels.Selector
	Waves    []Wave
	Domains  []Domain
	Failure  Failure
	// MaxNodeFaults is how many of the selected nodes may be out of order.
	MaxNodeFaults Limit
	Windows       Windows
	// NodesPerMinute is how many changes may begin in a minute; 0 means no limit.
	NodesPerMinute int
	// Content is nil where a revision is a template alone.
	Content *Content
	// PinsImages tells that all nodes get the digests that the first one got.
	PinsImages bool

	spec *v1alpha1.RolloutPolicySpec
}

// Wave is a part of the fleet that is changed before the next one.
type Wave struct {
	Name string
	// One of these says which nodes: a selector, a number, a percentage, the values of
	// a label; none of them, the rest.
	Nodes          labels.Selector
	Count, Percent int
	Each           string
	SpreadBy       string
	// Ramp are the sizes of the steps of a wave with Nodes, but for that of the last step, which takes
	// all others; nil for a wave that is one step.
	Ramp []int
	// MaxUnavailable is nil where the DaemonSet's own limit holds.
	MaxUnavailable *Limit
	Soak           time.Duration
	Manual         bool
	// Fetch has nodes fetch images before, which FetchDeadline after they were asked nobody waits for.
	Fetch         bool
	FetchDeadline time.Duration
}

// Fetches reports whether nodes of some wave fetch images before.
func (p *Policy) Fetches() bool {
	return slices.ContainsFunc(p.Waves, func(w Wave) bool { return w.Fetch })
}

// Domain limits how many nodes with one value of a label are unavailable.
type Domain struct {
	Key            string
	MaxUnavailable Limit
}

// Failure says when a revision has failed.
type Failure struct {
	Max           Limit
	Min           int
	StartDeadline time.Duration
	Restarts      int32
	Rollback      bool
}

// Limit is a number, or a percentage of something that is rounded up.
type Limit struct{ value intstr.IntOrString }

// LimitOf makes a limit of a number or a percentage that has been validated.
func LimitOf(v intstr.IntOrString) Limit { return Limit{v} }

// Of returns the number that the limit allows of total.
func (l Limit) Of(total int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(&l.value, total, true)
	if err != nil {
		return 0 // validation refuses what is neither
	}
	return n
}

// Exceeded reports whether n of total are more than the limit allows. A percentage is
// not rounded here: 1 of 10 is more than 5%.
func (l Limit) Exceeded(n, total int) bool {
	if l.value.Type == intstr.Int {
		return n > l.value.IntValue()
	}
	percent, err := intstr.GetScaledValueFromIntOrPercent(&l.value, 100, true)
	return err != nil || n*100 > percent*total
}

func (l Limit) String() string { return l.value.String() }

// Locate finds a time zone by its name.
type Locate func(name string) (*time.Location, error)

// Follow makes a policy ready that is to be followed. The error says why nobody follows it: as Compile does, or that it
// holds what this program does not know.
func Follow(p *v1alpha1.RolloutPolicy, locate Locate) (*Policy, error) {
	if err := newer.Check(p); err != nil {
		return nil, err
	}
	return Compile(&p.Spec, locate)
}

// Compile checks a spec and makes it ready. The error names everything that is
// wrong with it, in words for the one who wrote it.
func Compile(spec *v1alpha1.RolloutPolicySpec, locate Locate) (*Policy, error) {
	at := field.NewPath("spec")
	if errs := Validate(spec, at); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	spec = spec.DeepCopy()
	SetDefaults(spec)
	p := &Policy{spec: spec, Failure: failure(&spec.Failure), MaxNodeFaults: Limit{*spec.NodeFaults.Max}}
	p.Selector = labels.Everything()
	var errs field.ErrorList
	compile := func(s *metav1.LabelSelector, at *field.Path) labels.Selector {
		out, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			errs = append(errs, field.Invalid(at, s, err.Error()))
		}
		return out
	}
	if spec.Selector != nil {
		p.Selector = compile(spec.Selector, at.Child("selector"))
	}
	for i := range spec.Waves {
		w := wave(&spec.Waves[i])
		if s := spec.Waves[i].Nodes; s != nil {
			w.Nodes = compile(s, at.Child("waves").Index(i).Child("nodes"))
		}
		p.Waves = append(p.Waves, w)
	}
	p.Waves = append(p.Waves, Wave{Name: RestName})
	for _, d := range spec.Domains {
		p.Domains = append(p.Domains, Domain{Key: d.Key, MaxUnavailable: Limit{d.MaxUnavailable}})
	}
	for i := range spec.Windows {
		w, err := compileWindow(&spec.Windows[i], locate)
		if err != nil {
			errs = append(errs, field.Invalid(
				at.Child("windows").Index(i).Child("timeZone"), spec.Windows[i].TimeZone, err.Error(),
			))
			continue
		}
		p.Windows = append(p.Windows, w)
	}
	var excluded labels.Selector
	if c := spec.Content; c != nil && c.Exclude != nil && c.Exclude.Selector != nil {
		excluded = compile(c.Exclude.Selector, at.Child("content", "exclude", "selector"))
	}
	p.Content, p.PinsImages = compileContent(spec.Content, excluded), spec.Images == v1alpha1.ImagesPinned
	if n := spec.Pace.NodesPerMinute; n != nil {
		p.NodesPerMinute = int(*n)
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return p, nil
}

func wave(w *v1alpha1.Wave) Wave {
	out := Wave{Name: w.Name, Each: w.Each, SpreadBy: w.SpreadBy, Manual: w.Approval == v1alpha1.ApprovalManual}
	if w.Count != nil {
		out.Count = int(*w.Count)
	}
	if w.Percent != nil {
		out.Percent = int(*w.Percent)
	}
	if w.MaxUnavailable != nil {
		out.MaxUnavailable = &Limit{*w.MaxUnavailable}
	}
	if w.Ramp != nil {
		out.Ramp = ramp(int(*w.Ramp.From), int(*w.Ramp.Factor))
	}
	out.Soak, out.Fetch, out.FetchDeadline = length(w.Soak), w.Fetch, length(w.FetchDeadline)
	return out
}

// maxParts is how many steps a ramp has at most: more than any fleet needs that doubles.
const maxParts = 20

// ramp gives the sizes of growing steps, as far as numbers of nodes go.
func ramp(size, factor int) (sizes []int) {
	for len(sizes) < maxParts-1 && size <= math.MaxInt32 {
		sizes = append(sizes, size)
		size *= factor
	}
	return sizes
}

// length reads what has been validated; nothing is no time.
func length(d v1alpha1.Duration) time.Duration {
	out, err := time.ParseDuration(string(d))
	if err != nil {
		return 0
	}
	return out
}

// failure reads what has its defaults.
func failure(f *v1alpha1.Failure) Failure {
	return Failure{
		Max: Limit{*f.Max}, Min: int(*f.Min), StartDeadline: length(f.StartDeadline), Restarts: *f.Restarts,
		Rollback: f.Then == v1alpha1.FailureRollback,
	}
}

func compileWindow(w *v1alpha1.Window, locate Locate) (window, error) {
	zone, err := locate(w.TimeZone)
	// "Local" would mean another time on each server.
	if err != nil || strings.EqualFold(w.TimeZone, "local") {
		return window{}, fmt.Errorf("is no time zone that is known here; write one such as Europe/Berlin")
	}
	out := window{zone: zone}
	for i, name := range weekDays {
		out.days[i] = len(w.Days) == 0
		for _, d := range w.Days {
			out.days[i] = out.days[i] || d == name
		}
	}
	out.from, err = timeOfDay(w.From)
	if err != nil {
		return out, err
	}
	out.to, err = timeOfDay(w.To)
	return out, err
}
