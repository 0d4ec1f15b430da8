package pod

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

var (
	specPath, statusPath = field.NewPath("spec"), field.NewPath("status")
	annotationsPath      = field.NewPath("metadata", "annotations")
)

// Validate checks a new pod, metadata aside.
func Validate(p *corev1.Pod) field.ErrorList {
	errs := podspec.ValidateAnnotations(p.Annotations, &p.Spec, annotationsPath)
	return append(errs, podspec.ValidateNewPod(&p.Spec, specPath)...)
}

// ValidateUpdate checks a changed pod, metadata aside. Nearly nothing of a
// running pod's specification can change.
func ValidateUpdate(p, old *corev1.Pod) field.ErrorList {
	errs := podspec.ValidateAnnotations(p.Annotations, &p.Spec, annotationsPath)
	errs = append(errs, podspec.ValidatePod(&p.Spec, specPath)...)
	errs = append(errs, podspec.ValidateAnnotationsUpdate(p.Annotations, old.Annotations, annotationsPath)...)
	for _, l := range []struct {
		name     string
		now, was []corev1.Container
	}{
		{"containers", p.Spec.Containers, old.Spec.Containers},
		{"initContainers", p.Spec.InitContainers, old.Spec.InitContainers},
	} {
		if len(l.now) != len(l.was) {
			return append(errs, field.Forbidden(specPath.Child(l.name), "pod updates may not add or remove containers"))
		}
	}
	if bad := deadlineUpdate(p.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds); bad != nil {
		return append(errs, bad)
	}
	errs = append(errs, onlyMoreTolerations(p.Spec.Tolerations, old.Spec.Tolerations)...)
	errs = append(errs, onlyFewerGates(p.Spec.SchedulingGates, old.Spec.SchedulingGates)...)
	if alike.Values(p.Spec, old.Spec) {
		return errs
	}
	return append(errs, nothingElse(&p.Spec, &old.Spec)...)
}

// deadlineUpdate lets a deadline be set, or shortened.
func deadlineUpdate(now, was *int64) *field.Error {
	path := specPath.Child("activeDeadlineSeconds")
	switch {
	case now == nil && was != nil:
		return field.Invalid(path, now, "must not update from a positive integer to nil value")
	case now == nil:
		return nil
	case *now < 0 || *now > math.MaxInt32:
		return field.Invalid(path, *now, utilvalidation.InclusiveRangeError(0, math.MaxInt32))
	case was != nil && *now > *was:
		return field.Invalid(path, *now, "must be less than or equal to previous value")
	}
	return nil
}

// onlyMoreTolerations lets tolerations be added, and the time of one be changed.
func onlyMoreTolerations(now, was []corev1.Toleration) field.ErrorList {
	there := sets.New[corev1.Toleration]()
	for _, n := range now {
		n.TolerationSeconds = nil
		there.Insert(n)
	}
	for _, w := range was {
		w.TolerationSeconds = nil
		if !there.Has(w) {
			return field.ErrorList{field.Forbidden(
				specPath.Child("tolerations"), "existing toleration can not be modified except its tolerationSeconds",
			)}
		}
	}
	return nil
}

func onlyFewerGates(now, was []corev1.PodSchedulingGate) field.ErrorList {
	var errs field.ErrorList
	before := sets.New(was...)
	for i, g := range enough.Each(now, &errs) {
		if !before.Has(g) {
			errs = append(errs, field.Forbidden(
				specPath.Child("schedulingGates").Index(i), "only deletion is allowed, but found new scheduling gate '"+g.Name+"'",
			))
		}
	}
	return errs
}

var changeable = []string{
	"`spec.containers[*].image`", "`spec.initContainers[*].image`", "`spec.activeDeadlineSeconds`",
	"`spec.tolerations` (only additions to existing tolerations)",
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
}

// nothingElse compares the specifications with all that may change taken out.
func nothingElse(now, was *corev1.PodSpec) field.ErrorList {
	same := now.DeepCopy()
	for i := range same.Containers {
		same.Containers[i].Image = was.Containers[i].Image
	}
	for i := range same.InitContainers {
		same.InitContainers[i].Image = was.InitContainers[i].Image
	}
	same.ActiveDeadlineSeconds = was.ActiveDeadlineSeconds
	same.Tolerations, same.SchedulingGates = was.Tolerations, was.SchedulingGates
	if g := was.TerminationGracePeriodSeconds; g != nil && *g < 0 && same.TerminationGracePeriodSeconds != nil &&
		*same.TerminationGracePeriodSeconds == 1 {
		same.TerminationGracePeriodSeconds = g
	}
	var errs field.ErrorList
	if len(was.SchedulingGates) > 0 {
		// What a gated pod asks of nodes can still be narrowed down.
		same.NodeSelector = was.NodeSelector
		keepNodeAffinity(same, was)
		errs = onlyNarrower(now, was)
	}
	if alike.Values(*same, *was) {
		return errs
	}
	return append(errs, field.Forbidden(specPath, fmt.Sprintf("pod updates may not change fields other than %s\n%v",
		strings.Join(changeable, ","), diff.Diff(*was, *same))))
}

// keepNodeAffinity gives spec the node affinity of was, and no other affinity.
func keepNodeAffinity(spec, was *corev1.PodSpec) {
	var before *corev1.NodeAffinity
	if was.Affinity != nil {
		before = was.Affinity.NodeAffinity
	}
	switch a := spec.Affinity; {
	case a == nil && before == nil:
	case a == nil:
		spec.Affinity = &corev1.Affinity{NodeAffinity: before}
	case was.Affinity == nil && a.PodAffinity == nil && a.PodAntiAffinity == nil:
		spec.Affinity = nil
	default:
		a.NodeAffinity = before
	}
}

// onlyNarrower checks that a gated pod's node selector only gained labels and
// that its required node affinity stayed, or got more requirements.
func onlyNarrower(now, was *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	for key, value := range enough.Entries(was.NodeSelector, &errs) {
		if v, ok := now.NodeSelector[key]; !ok || v != value {
			errs = append(errs, field.Invalid(
				specPath.Child("nodeSelector"), now.NodeSelector,
				"only additions to spec.nodeSelector are allowed (no mutations or deletions)",
			))
			break
		}
	}
	before, after := requiredNodes(was), requiredNodes(now)
	if len(before) == 0 {
		return errs
	}
	path := specPath.Child(
		"affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms",
	)
	if len(after) != len(before) {
		return append(errs, field.Invalid(
			path, after, "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
		))
	}
	for i := range enough.Each(before, &errs) {
		if !onlyAdds(&after[i], &before[i]) {
			errs = append(errs, field.Invalid(path.Index(i), after[i], "only additions are allowed (no mutations or deletions)"))
		}
	}
	return errs
}

// requiredNodes returns the terms of which a node must meet one.
func requiredNodes(spec *corev1.PodSpec) []corev1.NodeSelectorTerm {
	a := spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// onlyAdds says whether a term got requirements at its end, and nothing else. A
// term without any meets no node, so adding to it would not narrow it down.
func onlyAdds(now, was *corev1.NodeSelectorTerm) bool {
	empty := func(t *corev1.NodeSelectorTerm) bool { return len(t.MatchExpressions)+len(t.MatchFields) == 0 }
	if empty(was) && !empty(now) {
		return false
	}
	return begins(now.MatchExpressions, was.MatchExpressions) && begins(now.MatchFields, was.MatchFields)
}

func begins(list, start []corev1.NodeSelectorRequirement) bool {
	return len(list) >= len(start) &&
		alike.Values(list[:len(start):len(start)], start[:len(start):len(start)])
}

// ValidateStatusUpdate checks a status that an agent or controller reports.
func ValidateStatusUpdate(p, old *corev1.Pod) field.ErrorList {
	errs := podspec.ValidateAnnotationsUpdate(p.Annotations, old.Annotations, annotationsPath)
	for i, c := range enough.Each(p.Status.Conditions, &errs) {
		for _, m := range utilvalidation.IsQualifiedName(string(c.Type)) {
			// The path is Kubernetes' own, and wrong.
			errs = append(errs, field.Invalid(field.NewPath("metadata", "conditions").Index(i).Child("Type"), c.Type, m))
		}
	}
	if name := p.Status.NominatedNodeName; name != "" {
		for _, m := range utilvalidation.IsDNS1123Subdomain(name) {
			errs = append(errs, field.Invalid(statusPath.Child("nominatedNodeName"), name, m))
		}
		if p.Spec.NodeName != "" && name != old.Status.NominatedNodeName {
			errs = append(errs, field.Forbidden(
				statusPath.Child("nominatedNodeName"), "may not be set on pods that are already bound to a node",
			))
		}
	}
	if old.Status.QOSClass != "" && p.Status.QOSClass != old.Status.QOSClass {
		errs = append(errs, field.Invalid(statusPath.Child("qosClass"), p.Status.QOSClass, "field is immutable"))
	}
	if seen := p.Status.ObservedGeneration; seen < 0 {
		errs = append(errs, field.Invalid(statusPath.Child("observedGeneration"), seen, "must be a non-negative integer"))
	}
	errs = append(errs, claimStatuses(p, statusPath.Child("resourceClaimStatuses"))...)
	errs = append(errs, noResurrection(
		p.Status.ContainerStatuses, old.Status.ContainerStatuses, statusPath.Child("containerStatuses"), p.Spec.RestartPolicy,
	)...)
	errs = append(errs, volumeImages(&p.Status)...)
	errs = append(errs, addresses(
		p.Status.PodIPs, old.Status.PodIPs, func(a corev1.PodIP) string { return a.IP }, statusPath.Child("podIPs"),
	)...)
	return append(errs, addresses(
		p.Status.HostIPs, old.Status.HostIPs, func(a corev1.HostIP) string { return a.IP }, statusPath.Child("hostIPs"),
	)...)
}

// claimStatuses checks which claims are said to be behind the entries of a pod.
func claimStatuses(p *corev1.Pod, path *field.Path) field.ErrorList {
	if len(p.Status.ResourceClaimStatuses) == 0 {
		return nil
	}
	var errs field.ErrorList
	entries, seen := sets.New[string](), sets.New[string]()
	for i := range p.Spec.ResourceClaims {
		entries.Insert(p.Spec.ResourceClaims[i].Name)
	}
	for i, s := range enough.Each(p.Status.ResourceClaimStatuses, &errs) {
		at := path.Index(i)
		if !entries.Has(s.Name) {
			errs = append(errs, field.Invalid(
				at.Child("name"), s.Name, "must match the name of an entry in `spec.resourceClaims`",
			))
		}
		if seen.Has(s.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), s.Name))
		}
		seen.Insert(s.Name)
		if s.ResourceClaimName != nil {
			for _, m := range utilvalidation.IsDNS1123Subdomain(*s.ResourceClaimName) {
				errs = append(errs, field.Invalid(at.Child("resourceClaimName"), *s.ResourceClaimName, m))
			}
		}
	}
	return errs
}

// noResurrection refuses to report a container that ended for good as running again.
func noResurrection(now, was []corev1.ContainerStatus, path *field.Path, policy corev1.RestartPolicy) field.ErrorList {
	if policy == corev1.RestartPolicyAlways {
		return nil
	}
	var errs field.ErrorList
	alive := sets.New[string]()
	for _, after := range now {
		if after.State.Terminated == nil {
			alive.Insert(after.Name)
		}
	}
	for i, before := range enough.Each(was, &errs) {
		t := before.State.Terminated
		if t == nil || t.ExitCode != 0 && policy == corev1.RestartPolicyOnFailure {
			continue
		}
		if alive.Has(before.Name) {
			errs = append(errs, field.Forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
		}
	}
	return errs
}

// volumeImages checks what containers are said to have as image volumes.
func volumeImages(s *corev1.PodStatus) (errs field.ErrorList) {
	for _, of := range []struct {
		name string
		list []corev1.ContainerStatus
	}{
		{"initContainerStatuses", s.InitContainerStatuses}, {"containerStatuses", s.ContainerStatuses},
		{"ephemeralContainerStatuses", s.EphemeralContainerStatuses},
	} {
		for i := range enough.Each(of.list, &errs) {
			for j, m := range enough.Each(of.list[i].VolumeMounts, &errs) {
				if m.VolumeStatus == nil || m.VolumeStatus.Image == nil {
					continue
				}
				at := statusPath.Child(of.name).Index(i).Child("volumeMounts").Index(j).Child("volumeStatus", "image", "imageRef")
				switch ref := m.VolumeStatus.Image.ImageRef; {
				case ref == "":
					errs = append(errs, field.Required(at, ""))
				case len(ref) > podfacts.MaxVolumeImageRef:
					errs = append(errs, field.TooLong(at, "", podfacts.MaxVolumeImageRef))
				}
			}
		}
	}
	return errs
}

// addresses checks at most one address of each IP family. One that was there before
// may be written in an old way.
func addresses[T any](list, before []T, ip func(T) string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	known := make([]string, 0, len(before))
	for _, a := range before {
		known = append(known, ip(a))
	}
	families, checkIP := map[bool]bool{}, check.IPs(known)
	for i, a := range enough.Each(list, &errs) {
		errs = append(errs, checkIP(path.Index(i), ip(a))...)
		six := strings.Contains(ip(a), ":")
		if families[six] {
			return append(errs, field.Invalid(path, ip(a), "may specify no more than one IP for each IP family"))
		}
		families[six] = true
	}
	return errs
}
