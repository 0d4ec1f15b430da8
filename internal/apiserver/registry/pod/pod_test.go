package pod

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// stored returns a pod as it is after creation, changed by the edits.
func stored(edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{
			NodeName:    "n1",
			Containers:  []corev1.Container{{Name: "main", Image: "i:1"}},
			Tolerations: []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}},
		},
	}
	for _, edit := range edits {
		edit(p)
	}
	SetDefaults(p)
	prepareForCreate(p)
	return p
}

func TestFirstStatus(t *testing.T) {
	p := stored(func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](-5)
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}}
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{"app"}}}
	})
	if p.Status.Phase != corev1.PodPending || p.Status.QOSClass != corev1.PodQOSBestEffort {
		t.Errorf("status is %s/%s, want Pending/BestEffort", p.Status.Phase, p.Status.QOSClass)
	}
	if *p.Spec.TerminationGracePeriodSeconds != 1 {
		t.Errorf("grace period is %d, want 1", *p.Spec.TerminationGracePeriodSeconds)
	}
	if len(p.Status.Conditions) != 1 || p.Status.Conditions[0].Reason != corev1.PodReasonSchedulingGated {
		t.Errorf("conditions are %v, want SchedulingGated", p.Status.Conditions)
	}
	if got := metav1.FormatLabelSelector(p.Spec.TopologySpreadConstraints[0].LabelSelector); got != "app in (a)" {
		t.Errorf("the spread's selector is %q, want the pod's own label", got)
	}
}

func TestNegativeGracePeriodOfAnUpdate(t *testing.T) {
	old := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](-5)}}
	p := old.DeepCopy()
	noNegativeGrace(p)
	if *p.Spec.TerminationGracePeriodSeconds != 1 {
		t.Errorf("grace period is %d, want 1", *p.Spec.TerminationGracePeriodSeconds)
	}
	if errs := nothingElse(&p.Spec, &old.Spec); len(errs) > 0 {
		t.Error(errs)
	}
}

// What a node reports cannot make an ordinary pod of a mirror pod, or the other way round,
// nor nominate a node for a pod that has one.
func TestStatusOfAForger(t *testing.T) {
	mirror := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}}, Spec: corev1.PodSpec{NodeName: "n"}}
	ordinary := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}}
	old := &corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "010.0.0.1"}}}}
	for name, c := range map[string]struct {
		old    *corev1.Pod
		change func(*corev1.Pod)
		want   string
	}{
		"mark removed":       {mirror, func(p *corev1.Pod) { p.Annotations = nil }, "may not remove or update mirror pod annotation"},
		"mark changed":       {mirror, func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "y"} }, "may not remove or update mirror pod annotation"},
		"mark added":         {ordinary, func(p *corev1.Pod) { p.Annotations = mirror.Annotations }, "may not add mirror pod annotation"},
		"nomination":         {ordinary, func(p *corev1.Pod) { p.Status.NominatedNodeName = "m" }, "may not be set on pods that are already bound to a node"},
		"leading zero":       {ordinary, func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "010.0.0.1"}} }, "must not have leading 0s"},
		"a claim of nothing": {ordinary, func(p *corev1.Pod) { p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "x"}} }, "must match the name of an entry in `spec.resourceClaims`"},
		"as it was":          {old, func(*corev1.Pod) {}, ""},
	} {
		p := c.old.DeepCopy()
		c.change(p)
		errs := ValidateStatusUpdate(p, c.old)
		if (len(errs) == 0) != (c.want == "") || c.want != "" && !strings.Contains(errs.ToAggregate().Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, errs, c.want)
		}
	}
}

func TestGracePeriod(t *testing.T) {
	for name, c := range map[string]struct {
		pod  func(*corev1.Pod)
		asks *int64
		want int64
	}{
		"the pod's own":  {func(*corev1.Pod) {}, nil, 30},
		"the user's":     {func(*corev1.Pod) {}, ptr.To[int64](5), 5},
		"at once":        {func(*corev1.Pod) {}, ptr.To[int64](0), 0},
		"never negative": {func(*corev1.Pod) {}, ptr.To[int64](-1), 1},
		"not on a node":  {func(p *corev1.Pod) { p.Spec.NodeName = "" }, nil, 0},
		"ended":          {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, ptr.To[int64](5), 0},
	} {
		p := stored()
		c.pod(p)
		options := &metav1.DeleteOptions{GracePeriodSeconds: c.asks}
		if !setGracePeriod(p, options) || *options.GracePeriodSeconds != c.want {
			t.Errorf("%s: got %d, want %d", name, *options.GracePeriodSeconds, c.want)
		}
	}
}

func gated(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }

// affine has a pod require nodes with these labels.
func affine(keys ...string) func(*corev1.Pod) {
	var term corev1.NodeSelectorTerm
	for _, k := range keys {
		term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: k, Operator: corev1.NodeSelectorOpExists})
	}
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}}}
	}
}

func TestUpdate(t *testing.T) {
	for name, c := range map[string]struct {
		old, edit func(*corev1.Pod)
		want      string // start of the only error; empty for none
	}{
		"image":       {edit: func(p *corev1.Pod) { p.Spec.Containers[0].Image = "i:2" }},
		"empty image": {edit: func(p *corev1.Pod) { p.Spec.Containers[0].Image = "" }, want: "spec.containers[0].image: Required value"},
		"empty container": {old: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
			p.Status.QOSClass = corev1.PodQOSBurstable
		}, edit: func(p *corev1.Pod) {
			p.Spec.Containers[0].Image, p.Spec.Containers[0].Resources = "", corev1.ResourceRequirements{}
		}, want: "spec.containers[0].image: Required value; spec: Forbidden: pod updates may not change fields other than"},
		"resources, and so another class": {old: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
			p.Status.QOSClass = corev1.PodQOSBurstable
		}, edit: func(p *corev1.Pod) { p.Spec.Containers[0].Resources = corev1.ResourceRequirements{} },
			want: "spec: Forbidden: pod updates may not change fields other than"},
		"new toleration": {edit: func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "x", Operator: corev1.TolerationOpExists})
		}},
		"changed toleration": {edit: func(p *corev1.Pod) { p.Spec.Tolerations[0].Key = "x" }, want: "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"},
		"deadline set":       {edit: func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](60) }},
		"deadline longer": {old: func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](60) },
			edit: func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](61) },
			want: "spec.activeDeadlineSeconds: Invalid value: 61: must be less than or equal to previous value"},
		"another container": {edit: func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "b", Image: "i:1"})
		},
			want: "spec.containers: Forbidden: pod updates may not add or remove containers"},
		"command": {edit: func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"x"} },
			want: "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"},
		"made the node's own": {edit: func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} },
			want: "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation"},
		"node": {edit: func(p *corev1.Pod) { p.Spec.NodeName = "n2" }, want: "spec: Forbidden: pod updates may not change fields other than"},
		"new gate": {edit: func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} },
			want: "spec.schedulingGates[0]: Forbidden: only deletion is allowed, but found new scheduling gate 'g'"},
		"gate taken away": {old: func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} },
			edit: func(p *corev1.Pod) { p.Spec.SchedulingGates = nil }},
		"selector of a gated pod": {old: func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} },
			edit: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }},
		"selector of a gated pod replaced": {old: func(p *corev1.Pod) { gated(p); p.Spec.NodeSelector = map[string]string{"disk": "hdd"} },
			edit: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} },
			want: `spec.nodeSelector: Invalid value: {"disk":"ssd"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)`},
		"affinity of a gated pod": {old: gated, edit: affine("a")},
		"one more requirement":    {old: func(p *corev1.Pod) { gated(p); affine("a")(p) }, edit: affine("a", "b")},
		"another requirement": {old: func(p *corev1.Pod) { gated(p); affine("a")(p) }, edit: affine("b", "a"),
			want: "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: Invalid value: "},
		"requirements taken away": {old: func(p *corev1.Pod) { gated(p); affine("a")(p) }, edit: func(p *corev1.Pod) { p.Spec.Affinity = nil },
			want: "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Invalid value: null: no additions/deletions to non-empty NodeSelectorTerms list are allowed"},
		"affinity to pods of a gated pod": {old: gated, edit: func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{}}}}}
		}, want: "spec: Forbidden: pod updates may not change fields other than"},
		"affinity of a pod without gates": {edit: affine("a"), want: "spec: Forbidden: pod updates may not change fields other than"},
	} {
		t.Run(name, func(t *testing.T) {
			old := stored()
			if c.old != nil {
				c.old(old)
			}
			p := old.DeepCopy()
			c.edit(p)
			SetDefaults(p)
			errs := ValidateUpdate(p, old)
			want := strings.Split(c.want, "; ")
			if c.want == "" && len(errs) > 0 || c.want != "" && !slices.EqualFunc(errs, want, func(e *field.Error, w string) bool {
				return strings.HasPrefix(e.Error(), w)
			}) {
				t.Errorf("got %v, want %q", errs, c.want)
			}
		})
	}
}

func TestMirrorPodNamesItsNode(t *testing.T) {
	p := stored(func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	})
	if errs := Validate(p); len(errs) > 0 {
		t.Errorf("on a node: %v", errs)
	}
	p.Spec.NodeName = ""
	const want = `metadata.annotations[kubernetes.io/config.mirror]: Invalid value: "x": must set spec.nodeName if mirror pod annotation is set`
	if errs := Validate(p); len(errs) != 1 || errs[0].Error() != want {
		t.Errorf("on no node: got %v, want %s", errs, want)
	}
}

func TestStatusUpdate(t *testing.T) {
	old := stored(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
	old.Status.ContainerStatuses = []corev1.ContainerStatus{ended("main", "Completed", 0, 0)}
	p := old.DeepCopy()
	p.Spec.NodeName, p.Status.QOSClass = "n2", ""
	p.Status.ContainerStatuses = []corev1.ContainerStatus{running("main", true)}
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "10.0.0.2"}}
	prepareStatusForUpdate(p, old)
	if p.Spec.NodeName != "n1" || p.Status.QOSClass != corev1.PodQOSBestEffort {
		t.Errorf("node %q and class %q were not kept", p.Spec.NodeName, p.Status.QOSClass)
	}
	want := []string{
		"status.observedGeneration: Invalid value: -1: must be a non-negative integer",
		"status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state",
		`status.podIPs: Invalid value: "10.0.0.2": may specify no more than one IP for each IP family`,
	}
	p.Status.ObservedGeneration = -1
	errs := ValidateStatusUpdate(p, old)
	if !slices.EqualFunc(errs, want, func(e *field.Error, w string) bool { return e.Error() == w }) {
		t.Errorf("got %v, want %v", errs, want)
	}
}

// What a node says of image volumes is kept, of containers of all sorts, unless it is longer than the API says.
func TestImagesOfVolumesInAStatus(t *testing.T) {
	says := func(ref string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "c", VolumeMounts: []corev1.VolumeMountStatus{{Name: "plain"}, {Name: "none", VolumeStatus: &corev1.VolumeStatus{}},
			{Name: "rules", VolumeStatus: &corev1.VolumeStatus{Image: &corev1.ImageVolumeStatus{ImageRef: ref}}}}}}
	}
	old := stored(func(*corev1.Pod) {})
	for ref, want := range map[string]string{strings.Repeat("a", 256): "", strings.Repeat("a", 257): "Too long: may not be more than 256 bytes",
		"": "Required value"} {
		p := old.DeepCopy()
		p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses = says(ref), says(ref), says(ref)
		prepareStatusForUpdate(p, old)
		if got := p.Status.ContainerStatuses[0].VolumeMounts[2].VolumeStatus.Image.ImageRef; got != ref {
			t.Errorf("of %q is kept %q", ref, got)
		}
		errs := ValidateStatusUpdate(p, old)
		for i, e := range errs {
			at := []string{"init", "", "ephemeral"}[i]
			of := strings.ToLower((at + "ContainerStatuses")[:1]) + (at + "ContainerStatuses")[1:]
			if says := "status." + of + "[0].volumeMounts[2].volumeStatus.image.imageRef: " + want; e.Error() != says {
				t.Errorf("the error is %q, want %q", e.Error(), says)
			}
		}
		if number := map[bool]int{true: 0, false: 3}[want == ""]; len(errs) != number {
			t.Errorf("%d characters: %d errors, want %d: %v", len(ref), len(errs), number, errs)
		}
	}
}
