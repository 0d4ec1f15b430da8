package illness

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Annotation names a fault on a node or a pod.
const Annotation = "simulated.everynode.io/fault"

// none is the value of Annotation on a node that is spared from all faults.
const none = "none"

// Plan is what a file of faults says.
type Plan struct {
	// Seed decides which nodes a share takes, and at what point of their rhythm nodes begin.
	Seed uint64 `json:"seed,omitempty"`
	// Labels are dealt out to the nodes: the first node gets the first value, the next one the second, and so on.
	Labels []Label `json:"labels,omitempty"`
	// Sizes are dealt out to the nodes in the same way.
	Sizes []Size `json:"sizes,omitempty"`
	// Faults of nodes and pods. If two of the same kind meet, the first one counts.
	Faults []Fault `json:"faults,omitempty"`
	// Tags has nodes tell digests of images, and tags move. Without it they tell none.
	Tags *Tags `json:"tags,omitempty"`
}

// Label is a label that every simulated node has, with one of the values.
type Label struct {
	Key    string   `json:"key"`
	Values []string `json:"values"`
}

// Size is what a node has. What it does not say is as for all nodes.
type Size struct {
	// Name is the value of the label node.kubernetes.io/instance-type, unless it is empty.
	Name    string             `json:"name,omitempty"`
	CPU     *resource.Quantity `json:"cpu,omitempty"`
	Memory  *resource.Quantity `json:"memory,omitempty"`
	Storage *resource.Quantity `json:"storage,omitempty"`
	Pods    *resource.Quantity `json:"pods,omitempty"`
}

// Fault is one fault: where, and exactly one kind.
type Fault struct {
	// Name is for messages, and makes the choice of a share differ from that of other faults.
	Name string `json:"name,omitempty"`
	// Nodes that can be concerned, by their labels; all if it is not given.
	Nodes *metav1.LabelSelector `json:"nodes,omitempty"`
	// Share of those nodes, such as "5%"; all if it is not given.
	Share string `json:"share,omitempty"`
	// Pods that are concerned, for faults of pods; all if it is not given.
	Pods *Pods `json:"pods,omitempty"`

	NotReady  *NotReady `json:"notReady,omitempty"`
	Pressure  *Pressure `json:"pressure,omitempty"`
	Flaps     *Flaps    `json:"flaps,omitempty"`
	PowerLoss *Span     `json:"powerLoss,omitempty"`
	Room      *Room     `json:"room,omitempty"`
	NoResize  *Refusal  `json:"noResize,omitempty"`
	// Maintenance is no fault of the node: somebody works on it.
	Maintenance *Maintenance `json:"maintenance,omitempty"`

	Crash     *Crash     `json:"crash,omitempty"`
	Memory    *Memory    `json:"outOfMemory,omitempty"`
	Unready   *Unready   `json:"neverReady,omitempty"`
	SlowPull  *SlowPull  `json:"slowPull,omitempty"`
	SlowTask  *SlowTask  `json:"slowTask,omitempty"`
	SlowStart *SlowStart `json:"slowStart,omitempty"`
	PullError *Refusal   `json:"pullError,omitempty"`
	Unstarted *Refusal   `json:"startError,omitempty"`
	KillsNode *KillsNode `json:"killsNode,omitempty"`
	// BadContent comes where a ConfigMap that the pod refers to has a key with a value.
	BadContent *BadContent `json:"badContent,omitempty"`

	nodes labels.Selector
	share float64
}

// Pods chooses containers by what is said of them and their pod; all that is given must be so. Image may have "*" at
// its end.
type Pods struct {
	Namespace   string            `json:"namespace,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Container   string            `json:"container,omitempty"`
	Image       string            `json:"image,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
}

// Span is a time: it begins After the node is first seen with the fault, and lasts For, or for ever.
type Span struct {
	After metav1.Duration `json:"after,omitempty"`
	For   metav1.Duration `json:"for,omitempty"`
}

// NotReady makes a node say that it is not ready.
type NotReady struct {
	Span    `json:",inline"`
	Message string `json:"message,omitempty"`
}

// Pressure makes a node say that it is short of memory, disk or pid.
type Pressure struct {
	Span `json:",inline"`
	Of   string `json:"of"`
}

// Maintenance gives a node one of the conditions by which it is in maintenance, or is to be.
type Maintenance struct {
	Span      `json:",inline"`
	Condition corev1.NodeConditionType `json:"condition,omitempty"`
	Message   string                   `json:"message,omitempty"`
}

// MaintenanceConditions are those that it may name.
var MaintenanceConditions = []corev1.NodeConditionType{
	corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress, corev1.NodeDrained,
	corev1.NodeGracefulNodeShutdownInProgress, corev1.NodeMaintenancePlanned,
}

// Flaps makes a node fall silent and come back, over and over; its containers run on.
type Flaps struct {
	Up   metav1.Duration `json:"up"`
	Down metav1.Duration `json:"down"`
}

// Room is what the node offers to pods in place of all that it has.
type Room struct {
	CPU    *resource.Quantity `json:"cpu,omitempty"`
	Memory *resource.Quantity `json:"memory,omitempty"`
	Pods   *resource.Quantity `json:"pods,omitempty"`
}

// Crash makes a container end some time after each start, 1 s by default, with an exit code, 1 by default, and last
// words; with Times, after so many starts of it in each pod only.
type Crash struct {
	After    *metav1.Duration `json:"after,omitempty"`
	ExitCode int32            `json:"exitCode,omitempty"`
	Message  string           `json:"message,omitempty"`
	Times    int              `json:"times,omitempty"`
}

// BadContent makes a container crash if its pod reads, from any ConfigMap, this value of the key.
type BadContent struct {
	Crash `json:",inline"`
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Memory makes a container be killed for memory some time after each start, 1 s by default; with Uses only where its
// limit is below that.
type Memory struct {
	After *metav1.Duration   `json:"after,omitempty"`
	Uses  *resource.Quantity `json:"uses,omitempty"`
}

// Unready makes a container's probes fail for ever. One without a readiness or startup probe never starts.
type Unready struct {
	Message string `json:"message,omitempty"`
}

// SlowPull makes a pull take time.
type SlowPull struct {
	Takes metav1.Duration `json:"takes"`
}

// SlowTask makes the work of a container take time whose pod is not to be restarted always.
type SlowTask struct {
	Takes metav1.Duration `json:"takes"`
}

// SlowStart makes a container be ready so long after its start, 1 min by default; with UpTo each node has a time of its
// own from Takes to that. One without a readiness or startup probe starts so much later.
type SlowStart struct {
	Takes metav1.Duration  `json:"takes,omitempty"`
	UpTo  *metav1.Duration `json:"upTo,omitempty"`
}

// Refusal makes a pull, or the start of a container, fail, or has a node give no running pod other amounts.
type Refusal struct {
	Message string `json:"message,omitempty"`
}

// KillsNode makes the node lose its power some time after the container started, 2 min by default. It comes back after
// For, or never; once back, it starts its containers again and the time runs again.
type KillsNode struct {
	After *metav1.Duration `json:"after,omitempty"`
	For   metav1.Duration  `json:"for,omitempty"`
}

// Parse reads a file of faults. What it does not know it refuses.
func Parse(data []byte) (*Plan, error) {
	plan := &Plan{}
	if err := strict(data, plan); err != nil {
		return nil, err
	}
	for _, l := range plan.Labels {
		if err := l.check(); err != nil {
			return nil, err
		}
	}
	for i := range plan.Sizes {
		if err := plan.Sizes[i].check(); err != nil {
			return nil, fmt.Errorf("size %d: %w", i+1, err)
		}
	}
	if err := plan.Tags.check(); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for i := range plan.Faults {
		f := &plan.Faults[i]
		if f.Name == "" {
			f.Name = "fault " + strconv.Itoa(i+1)
		}
		if names[f.Name] {
			return nil, fmt.Errorf("two faults are called %q; give each a name of its own", f.Name)
		}
		names[f.Name] = true
		if err := f.complete(); err != nil {
			return nil, fmt.Errorf("fault %q: %w", f.Name, err)
		}
	}
	return plan, nil
}

func strict(data []byte, into any) error {
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		text := err.Error()
		for _, noise := range []string{"error unmarshaling JSON: ", "while decoding JSON: ",
			"error converting YAML to JSON: "} {
			text = strings.ReplaceAll(text, noise, "")
		}
		return errors.New(strings.ReplaceAll(text, "\n", " "))
	}
	return nil
}

func (l *Label) check() error {
	if problems := validation.IsQualifiedName(l.Key); len(problems) > 0 {
		return fmt.Errorf("label %q: %s", l.Key, problems[0])
	}
	if len(l.Values) == 0 {
		return fmt.Errorf("label %q: it has no values", l.Key)
	}
	for _, v := range l.Values {
		if problems := validation.IsValidLabelValue(v); len(problems) > 0 {
			return fmt.Errorf("label %q: value %q: %s", l.Key, v, problems[0])
		}
	}
	return nil
}

func (s *Size) check() error {
	if problems := validation.IsValidLabelValue(s.Name); len(problems) > 0 {
		return fmt.Errorf("name %q: %s", s.Name, problems[0])
	}
	for what, q := range s.Amounts() {
		if q.Sign() <= 0 {
			return fmt.Errorf("%s of %s is not more than nothing", what, q.String())
		}
	}
	return nil
}

// Amounts are those that it says something about.
func (s *Size) Amounts() corev1.ResourceList {
	out := corev1.ResourceList{}
	for what, q := range map[corev1.ResourceName]*resource.Quantity{
		corev1.ResourceCPU: s.CPU, corev1.ResourceMemory: s.Memory, corev1.ResourceEphemeralStorage: s.Storage,
		corev1.ResourcePods: s.Pods,
	} {
		if q != nil {
			out[what] = *q
		}
	}
	return out
}

// SizeOf is the size of the node of that number, from 1; nil for that of all nodes.
func (p *Plan) SizeOf(number int) *Size {
	if p == nil || len(p.Sizes) == 0 {
		return nil
	}
	return &p.Sizes[(number-1)%len(p.Sizes)]
}

// parseAnnotation reads the value of Annotation: the name of a kind alone, or a fault.
func parseAnnotation(value string) (*Fault, error) {
	f, value := &Fault{}, strings.TrimSpace(value)
	if value != "" && !strings.ContainsAny(value, "{:") {
		value = value + ": {}"
	}
	if err := strict([]byte(value), f); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", Annotation, err)
	}
	if f.Name == "" {
		f.Name = Annotation
	}
	if err := f.complete(); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", Annotation, err)
	}
	return f, nil
}

// complete fills in defaults and says what is wrong.
func (f *Fault) complete() error {
	kinds := f.kinds()
	if len(kinds) != 1 {
		return fmt.Errorf("it names %d kinds of fault %v, and must name one of %s", len(kinds), kinds,
			strings.Join(kindNames, ", "))
	}
	if f.Pods != nil && f.ofNode() {
		return fmt.Errorf("%s is a fault of nodes; pods say nothing about it", kinds[0])
	}
	f.nodes = labels.Everything()
	if f.Nodes != nil {
		selector, err := metav1.LabelSelectorAsSelector(f.Nodes)
		if err != nil {
			return fmt.Errorf("nodes: %w", err)
		}
		f.nodes = selector
	}
	if err := f.readShare(); err != nil {
		return err
	}
	if f.Pods != nil && strings.Contains(strings.TrimSuffix(f.Pods.Image, "*"), "*") {
		return fmt.Errorf("pods.image %q: a * may stand at its end only", f.Pods.Image)
	}
	return f.checkKind()
}

func (f *Fault) readShare() error {
	f.share = 1
	if f.Share == "" {
		return nil
	}
	number, isPercent := strings.CutSuffix(f.Share, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if !isPercent || err != nil || !(percent >= 0 && percent <= 100) {
		return fmt.Errorf("share %q is not a percentage from 0%% to 100%%", f.Share)
	}
	f.share = percent / 100
	return nil
}

// matches reports whether the container is meant.
func (p *Pods) matches(pod *corev1.Pod, c *corev1.Container) bool {
	if p == nil {
		return true
	}
	if p.Namespace != "" && p.Namespace != pod.Namespace || p.Container != "" && p.Container != c.Name {
		return false
	}
	if !within(p.Labels, pod.Labels) || !within(p.Annotations, pod.Annotations) {
		return false
	}
	if prefix, open := strings.CutSuffix(p.Image, "*"); p.Image != "" && p.Image != c.Image &&
		!(open && strings.HasPrefix(c.Image, prefix)) {
		return false
	}
	if len(p.Env) == 0 {
		return true
	}
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	return within(p.Env, env)
}

func within(want, have map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func given(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}
