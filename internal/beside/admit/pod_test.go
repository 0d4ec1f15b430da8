package admit

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/objects/podtemplate"
)

func templateOf(image string, change ...func(*corev1.PodTemplateSpec)) *corev1.PodTemplateSpec {
	t := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}},
		Spec: corev1.PodSpec{SchedulerName: "default-scheduler",
			Containers: []corev1.Container{{Name: "agent", Image: image}}},
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
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + hash,
			Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}},
		Data: runtime.RawExtension{Raw: raw},
	}
}

// made is the pod that kube-controller-manager makes of a template, by the Go types.
func made(template *corev1.PodTemplateSpec, hash, node string) *corev1.Pod {
	owner := metav1.OwnerReference{Kind: "DaemonSet", Name: "agent", UID: "1", Controller: ptr.To(true)}
	p := podtemplate.Pod(template, "default", "agent-", owner)
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
	c := &p.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "kube-api-access-x", MountPath: "/token"})
	c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
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
		path, appends := strings.CutSuffix(s.Path, "/-")
		names := strings.Split(strings.TrimPrefix(path, "/"), "/")
		in, last := within(all, names[:len(names)-1]), strings.ReplaceAll(names[len(names)-1], "~1", "/")
		if _, there := in[last]; in == nil || s.Op != "add" && !there || s.Op != "remove" && s.Value == nil {
			t.Fatalf("%s %s does nothing to %s", s.Op, s.Path, raw)
		}
		if list, is := in[last].([]any); appends && is {
			s.Value = append(list, s.Value)
		}
		delete(in, last)
		if s.Op != "remove" {
			in[last] = s.Value
		}
	}
	err = into(all, out)
	if err != nil {
		t.Fatal(err)
	}
}

// within is the object at a place, some of whose names may count entries of lists.
func within(in any, names []string) object {
	for _, name := range names {
		if list, is := in.([]any); is {
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(list) {
				return nil
			}
			in = list[i]
			continue
		}
		o, _ := in.(object)
		in = o[name]
	}
	out, _ := in.(object)
	return out
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
		both := []*appsv1.ControllerRevision{revisionOf(t, "new", from), revisionOf(t, "old", to)}
		got := Pod(NewPod{Pod: raw, Want: "old", Revisions: both})
		if got.Verb != Rewrite {
			r.Fatalf("%s: %s", got.Verb, got.Why)
		}
		placed := to.DeepCopy()
		f := from.DeepCopy().Spec
		placed.Spec.NodeName, placed.Spec.NodeSelector = f.NodeName, f.NodeSelector
		placed.Spec.SchedulerName = f.SchedulerName
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

// TestAPodRefersToItsContent: of another template or its own, a pod that has content refers to its copies and says so.
// One that does already is left alone, and so is what others added to a pod of the right template.
func TestAPodRefersToItsContent(t *testing.T) {
	reads := func(t *corev1.PodTemplateSpec) {
		named := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
		conf := &corev1.ConfigMapVolumeSource{LocalObjectReference: named("conf")}
		token := &corev1.SecretKeySelector{LocalObjectReference: named("token"), Key: "t"}
		t.Spec.Volumes = []corev1.Volume{{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: conf}}}
		t.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PLAIN", Value: "x"},
			{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: token}}}
		t.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("missing")}}}
	}
	const id = "aaaaaaaaaaaaaaaaaaaaaaaa"
	members := []content.Member{{Ref: content.Ref{Kind: content.ConfigMap, Name: "conf"}, Copy: "conf-1"},
		{Ref: content.Ref{Kind: content.Secret, Name: "token"}, Copy: "token-1"},
		{Ref: content.Ref{Kind: content.ConfigMap, Name: "missing"}, Copy: "missing-1", Absent: true}}
	one, two := templateOf("agent:1", reads), templateOf("agent:2", reads)
	both := []*appsv1.ControllerRevision{revisionOf(t, "old", one), revisionOf(t, "new", two)}
	for name, c := range map[string]struct {
		of        *corev1.PodTemplateSpec
		hash      string
		want      string
		keepsMore bool
	}{"of its own template": {one, "old", "old." + id, true}, "of another": {two, "new", "old." + id, false}} {
		t.Run(name, func(t *testing.T) {
			pod := admitted(made(c.of, c.hash, "node-1"))
			in := NewPod{Pod: encode(t, pod), Want: c.want, Members: members, Revisions: both}
			got := Pod(in)
			if got.Verb != Rewrite {
				t.Fatalf("%s: %s", got.Verb, got.Why)
			}
			want := made(one, "old", "node-1")
			if c.keepsMore {
				want = admitted(want)
			} else {
				delete(want.Labels, podTemplateGeneration)
			}
			want.Labels[content.RevisionLabel] = c.want
			want.Spec.Volumes[0].ConfigMap.Name, want.Spec.Containers[0].Env[1].ValueFrom.SecretKeyRef.Name = "conf-1", "token-1"
			reader, empty := &want.Spec.Containers[0], members[2].CopyRef().Name
			reader.EnvFrom[0].ConfigMapRef.Name = empty
			reader.Env = append(reader.Env, corev1.EnvVar{Name: "EVERYNODE_MISSING_CONTENT", ValueFrom: &corev1.EnvVarSource{
				ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: empty}, Key: "missing"}}})
			after := &corev1.Pod{}
			apply(t, in.Pod, got.Patch, after)
			if !apiequality.Semantic.DeepEqual(after, want) {
				t.Fatalf("the pod becomes\n%s\nand not\n%s", encode(t, after), encode(t, want))
			}
			in.Pod = encode(t, after)
			if got = Pod(in); got.Verb != AsMade {
				t.Errorf("when it is asked about again it is to be changed: %s, %s", got.Why, got.Patch)
			}
			delete(after.Labels, content.RevisionLabel)
			in.Pod = encode(t, after)
			if got = Pod(in); got.Verb != Rewrite {
				t.Errorf("without the label it is left alone: %s", got.Why)
			}
			for claimed, refers := range map[string]string{c.want: "conf", "old.bbbbbbbbbbbbbbbbbbbbbbbb": "conf-2"} {
				claims := made(one, "old", "node-1")
				claims.Labels[content.RevisionLabel], claims.Spec.Volumes[0].ConfigMap.Name = claimed, refers
				in.Pod = encode(t, claims)
				got = Pod(in)
				after := &corev1.Pod{}
				if got.Verb == Rewrite {
					apply(t, in.Pod, got.Patch, after)
				}
				if after.Labels[content.RevisionLabel] != c.want || after.Spec.Volumes[0].ConfigMap.Name != "conf-1" {
					t.Errorf("a pod that claims %s and refers to %s becomes %s", claimed, refers, encode(t, after))
				}
			}
		})
	}
	claims := made(two, "new", "node-1")
	in := NewPod{Pod: encode(t, claims), Want: "new", Revisions: both}
	if got := Pod(in); got.Verb != AsMade {
		t.Errorf("without content it is to be changed: %s", got.Why)
	}
	claims.Labels[content.RevisionLabel] = "new." + id
	in.Pod = encode(t, claims)
	after := &corev1.Pod{}
	got := Pod(in)
	if got.Verb != Rewrite {
		t.Fatalf("what claims a content that it is not to have is left alone: %s", got.Why)
	}
	apply(t, in.Pod, got.Patch, after)
	if after.Labels[content.RevisionLabel] != "" {
		t.Errorf("it still claims %s", after.Labels[content.RevisionLabel])
	}
}

// TestPodsOfANewDaemonSetWait for the copies of what they read, but not for long.
func TestPodsOfANewDaemonSetWait(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	reads := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now)}}
	reads.Spec.Template.Spec.Containers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{
		ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}}}}}
	reads.Labels = map[string]string{"app": "agent"}
	nothing := appsv1.DaemonSet{ObjectMeta: reads.ObjectMeta}
	variants := func(of string) []v1alpha1.DaemonSetVariant {
		return []v1alpha1.DaemonSetVariant{{Spec: v1alpha1.DaemonSetVariantSpec{
			DaemonSets: &metav1.LabelSelector{MatchLabels: map[string]string{"app": of}}}}}
	}
	compile := func(c *v1alpha1.Content) *rolloutpolicy.Policy {
		waves := []v1alpha1.Wave{{Name: "canary", Count: ptr.To[int32](1)}}
		p, err := rolloutpolicy.Compile(&v1alpha1.RolloutPolicySpec{Waves: waves, Content: c}, time.LoadLocation)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	maps := &v1alpha1.Content{ConfigMaps: v1alpha1.ContentReferenced}
	secrets := &v1alpha1.Content{ConfigMaps: v1alpha1.ContentNone, Secrets: v1alpha1.ContentReferenced}
	others := &v1alpha1.Content{ConfigMaps: v1alpha1.ContentReferenced,
		Exclude: &v1alpha1.ContentExclusion{Names: []string{"conf"}}}
	for name, c := range map[string]struct {
		ds       *appsv1.DaemonSet
		content  *v1alpha1.Content
		variants []v1alpha1.DaemonSetVariant
		at       time.Time
		verb     Verb
	}{
		"new":                          {&reads, maps, nil, now.Add(time.Second), Later},
		"just before it":               {&reads, maps, nil, now.Add(9 * time.Second), Later},
		"not new any more":             {&reads, maps, nil, now.Add(10 * time.Second), AsMade},
		"our clock is somewhat behind": {&reads, maps, nil, now.Add(-9 * time.Second), Later},
		"our clock is an hour behind":  {&reads, maps, nil, now.Add(-time.Hour), AsMade},
		"it reads nothing":             {&nothing, maps, nil, now, AsMade},
		"without content":              {&reads, nil, nil, now, AsMade},
		"Secrets alone are content":    {&reads, secrets, nil, now, AsMade},
		"what it reads is excluded":    {&reads, others, nil, now, AsMade},
		"variants choose it":           {&nothing, nil, variants("agent"), now, Later},
		"and it is not new any more":   {&nothing, nil, variants("agent"), now.Add(10 * time.Second), AsMade},
		"variants choose another":      {&nothing, nil, variants("other"), now, AsMade},
	} {
		if got := Early(c.ds, compile(c.content), c.variants, c.at); got.Verb != c.verb {
			t.Errorf("%s: %s, %s", name, got.Verb, got.Why)
		}
	}
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
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
					TolerationSeconds: ptr.To[int64](9)},
			}
		}
		if some("affinity") {
			prefers := []corev1.PreferredSchedulingTerm{{Weight: 1}}
			t.Spec.Affinity = &corev1.Affinity{
				NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: prefers},
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
	image, later := []byte(`"image":`), []byte(`"later":{"n":9007199254740993},"image":`)
	newer.Data.Raw = bytes.Replace(newer.Data.Raw, image, later, 1)
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
	revisions := func(more ...*appsv1.ControllerRevision) []*appsv1.ControllerRevision {
		return append(slices.Clone(both), more...)
	}
	for name, c := range map[string]struct {
		pod  []byte
		want string
		of   []*appsv1.ControllerRevision
		verb Verb
		why  string
	}{
		"no rollout":       {encode(t, pod), "", both, AsMade, "no revision is known for its node"},
		"its own revision": {encode(t, pod), "new", both, AsMade, "it has its node's revision"},
		"no JSON":          {[]byte("{"), "old", both, Unknown, "the pod cannot be read"},
		"null":             {[]byte("null"), "old", both, Unknown, "the pod cannot be read"},
		"no node":          {encode(t, nowhere), "old", both, Unknown, "it is not made for one node"},
		"its own is gone": {encode(t, pod), "old", both[:1], Unknown,
			`the revision it was made for: there is none with the hash "new"`},
		"the wanted is gone": {encode(t, pod), "old", both[1:], Unknown,
			`the revision it is to have: there is none with the hash "old"`},
		"two templates, a hash": {encode(t, pod), "old", revisions(revisionOf(t, "old", templateOf("agent:3"))), Unknown,
			`two templates have the hash "old"`},
		"the copy of a rollout": {encode(t, pod), "old", revisions(revisionOf(t, "old", one)), Rewrite,
			"old in place of new"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Pod(NewPod{Pod: c.pod, Want: c.want, Revisions: c.of})
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
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: names}}}
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
