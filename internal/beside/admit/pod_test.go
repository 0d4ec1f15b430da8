package admit

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/objects/podtemplate"
)

func templateOf(image string, change ...func(*corev1.PodTemplateSpec)) *corev1.PodTemplateSpec {
	t := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: image}}, SchedulerName: "default-scheduler"},
	}
	for _, c := range change {
		c(t)
	}
	return t
}

func revisionOf(t testing.TB, hash string, template *corev1.PodTemplateSpec) *appsv1.ControllerRevision {
	t.Helper()
	raw, err := history.Patch(template)
	if err != nil {
		t.Fatal(err)
	}
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + hash, Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}},
		Data:       runtime.RawExtension{Raw: raw},
	}
}

// made is the pod that kube-controller-manager makes of a template, by the Go types.
func made(template *corev1.PodTemplateSpec, hash, node string) *corev1.Pod {
	p := podtemplate.Pod(template, "default", "agent-", metav1.OwnerReference{Kind: "DaemonSet", Name: "agent", UID: "1", Controller: ptr.To(true)})
	p.Labels[appsv1.ControllerRevisionHashLabelKey], p.Labels[podTemplateGeneration] = hash, "7"
	p.Spec.Tolerations = placement.Tolerations(&p.Spec)
	p.Spec.Affinity = placement.PinToNode(p.Spec.Affinity, node)
	return p
}

// admitted is a pod after the API server's own admission has added what it does.
func admitted(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.Spec.Priority, p.Spec.PreemptionPolicy = ptr.To[int32](1000), ptr.To(corev1.PreemptLowerPriority)
	p.Spec.ServiceAccountName, p.Spec.ImagePullSecrets = "default", []corev1.LocalObjectReference{{Name: "registry"}}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "kube-api-access-x"})
	p.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("120Mi")}
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "kube-api-access-x", MountPath: "/token"})
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, "kubernetes.io/limit-ranger", "LimitRanger plugin set: cpu request")
	return p
}

// apply does what the API server does with a patch, as far as this package writes one, and reads the outcome into out.
func apply(t testing.TB, raw, patch []byte, out any) {
	t.Helper()
	var steps []step
	err := json.Unmarshal(patch, &steps)
	if err != nil {
		t.Fatal(err)
	}
	all, err := decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		names := strings.Split(strings.TrimPrefix(s.Path, "/"), "/")
		in, last := part(all, names[:len(names)-1]...), strings.ReplaceAll(names[len(names)-1], "~1", "/")
		if _, there := in[last]; in == nil || s.Op == "remove" && !there || s.Op == "add" && s.Value == nil {
			t.Fatalf("%s %s does nothing to %s", s.Op, s.Path, raw)
		}
		delete(in, last)
		if s.Op == "add" {
			in[last] = s.Value
		}
	}
	err = into(all, out)
	if err != nil {
		t.Fatal(err)
	}
}

func encode(t testing.TB, value any) []byte {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestARewrittenPodIsWhatItsRevisionMakes compares the answer with a pod that is made of the wanted revision by the Go
// types: whatever admission had added to the pod is gone, and placement is that of the revision it was made for.
func TestARewrittenPodIsWhatItsRevisionMakes(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		from, to := anyTemplate(r, "from"), anyTemplate(r, "to")
		to.Spec.Containers[0].Image = "example.com/agent:wanted"
		pod := made(from, "new", "node-1")
		if rapid.Bool().Draw(r, "admitted") {
			pod = admitted(pod)
		}
		raw := encode(t, pod)
		got := Pod(NewPod{Pod: raw, Want: "old", Revisions: []*appsv1.ControllerRevision{revisionOf(t, "new", from), revisionOf(t, "old", to)}})
		if got.Verb != Rewrite {
			r.Fatalf("%s: %s", got.Verb, got.Why)
		}
		placed := to.DeepCopy()
		f := from.DeepCopy().Spec
		placed.Spec.NodeName, placed.Spec.NodeSelector, placed.Spec.SchedulerName = f.NodeName, f.NodeSelector, f.SchedulerName
		placed.Spec.Affinity, placed.Spec.Tolerations = f.Affinity, f.Tolerations
		placed.Spec.HostNetwork = f.HostNetwork || placed.Spec.HostNetwork
		want := made(placed, "old", "node-1")
		want.Spec.HostNetwork = to.Spec.HostNetwork
		delete(want.Labels, podTemplateGeneration)
		after := &corev1.Pod{}
		apply(t, raw, got.Patch, after)
		if !apiequality.Semantic.DeepEqual(after, want) {
			r.Fatalf("the pod becomes\n%s\nand not\n%s", encode(t, after), encode(t, want))
		}
	})
}

func anyTemplate(r *rapid.T, name string) *corev1.PodTemplateSpec {
	some := func(what string) bool { return rapid.Bool().Draw(r, name+" has "+what) }
	return templateOf("example.com/agent:"+name, func(t *corev1.PodTemplateSpec) {
		if some("labels") {
			t.Labels[name], t.Labels[podTemplateGeneration] = "x", "of the author"
		}
		if some("annotations") {
			t.Annotations = map[string]string{name: "x"}
		}
		if some("finalizers") {
			t.Finalizers = []string{"example.com/" + name}
		}
		if some("a node selector") {
			t.Spec.NodeSelector = map[string]string{name: "x"}
		}
		if some("tolerations") {
			t.Spec.Tolerations = []corev1.Toleration{
				{Key: name, Operator: corev1.TolerationOpExists},
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](9)},
			}
		}
		if some("affinity") {
			t.Spec.Affinity = &corev1.Affinity{
				NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1}}},
				PodAffinity:  &corev1.PodAffinity{},
			}
		}
		t.Spec.HostNetwork = some("its node's network")
		if some("a scheduler") {
			t.Spec.SchedulerName = name
		}
		if some("a class") {
			t.Spec.PriorityClassName = name
		}
	})
}

// TestFieldsOfANewerAPIStay has a revision with a field and a number that the Go types do not know.
func TestFieldsOfANewerAPIStay(t *testing.T) {
	newer := revisionOf(t, "old", templateOf("agent:1"))
	newer.Data.Raw = []byte(strings.Replace(string(newer.Data.Raw), `"image":`, `"later":{"n":9007199254740993},"image":`, 1))
	a := Pod(NewPod{
		Pod: encode(t, made(templateOf("agent:2"), "new", "node-1")), Want: "old",
		Revisions: []*appsv1.ControllerRevision{newer, revisionOf(t, "new", templateOf("agent:2"))},
	})
	if !strings.Contains(string(a.Patch), `"later":{"n":9007199254740993}`) {
		t.Errorf("the field is lost: %s", a.Patch)
	}
}

func TestPodsThatStayAndPodsThatAreUnknown(t *testing.T) {
	one, two := templateOf("agent:1"), templateOf("agent:2")
	both := []*appsv1.ControllerRevision{revisionOf(t, "old", one), revisionOf(t, "new", two)}
	pod := made(two, "new", "node-1")
	nowhere := pod.DeepCopy()
	nowhere.Spec.Affinity = nil
	for name, c := range map[string]struct {
		in   NewPod
		verb Verb
		why  string
	}{
		"no rollout":            {NewPod{encode(t, pod), "", both}, AsMade, "no revision is known for its node"},
		"its own revision":      {NewPod{encode(t, pod), "new", both}, AsMade, "it has its node's revision"},
		"no JSON":               {NewPod{[]byte("{"), "old", both}, Unknown, "the pod cannot be read"},
		"null":                  {NewPod{[]byte("null"), "old", both}, Unknown, "the pod cannot be read"},
		"no node":               {NewPod{encode(t, nowhere), "old", both}, Unknown, "it is not made for one node"},
		"its own is gone":       {NewPod{encode(t, pod), "old", both[:1]}, Unknown, `the revision it was made for: there is none with the hash "new"`},
		"the wanted is gone":    {NewPod{encode(t, pod), "old", both[1:]}, Unknown, `the revision it is to have: there is none with the hash "old"`},
		"two templates, a hash": {NewPod{encode(t, pod), "old", append(both, revisionOf(t, "old", templateOf("agent:3")))}, Unknown, `two templates have the hash "old"`},
		"the copy of a rollout": {NewPod{encode(t, pod), "old", append(both, revisionOf(t, "old", one))}, Rewrite, "old in place of new"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Pod(c.in)
			if got.Verb != c.verb || !strings.Contains(got.Why, c.why) {
				t.Errorf("%s: %s, want %s: %s", got.Verb, got.Why, c.verb, c.why)
			}
			if (got.Patch != nil) != (c.verb == Rewrite) {
				t.Errorf("the patch is %s", got.Patch)
			}
		})
	}
}

func TestNode(t *testing.T) {
	term := func(names ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: names}}}
	}
	for want, all := range map[string][][]corev1.NodeSelectorTerm{
		"a": {{term("a")}, {term("a"), term("a")}},
		"":  {nil, {term("a", "b")}, {term("a"), term("b")}, {term("a"), {}}},
	} {
		for _, terms := range all {
			var p corev1.Pod
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
			}}
			if got := Node(encode(t, p)); got != want {
				t.Errorf("%v is for %q, want %q", terms, got, want)
			}
		}
	}
}
