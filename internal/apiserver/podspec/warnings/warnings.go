// Package warnings says of a specification that is accepted what is worth a word.
package warnings

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/podspec/placement"
)

// OfTemplate says what is allowed in a new or changed template, but most
// likely not what its author wants.
func OfTemplate(template *corev1.PodTemplateSpec, path *field.Path) []string {
	w := warner{&template.Spec, template.Annotations, path.Child("spec"), path.Child("metadata", "annotations")}
	return w.warnings(w.appArmor)
}

// OfPod is TemplateWarnings for a pod.
func OfPod(p *corev1.Pod) []string {
	w := warner{&p.Spec, p.Annotations, field.NewPath("spec"), field.NewPath("metadata", "annotations")}
	return w.warnings(func(*corev1.Container) []string { return nil })
}

// OfName says that a name will look strange where it is used in hostnames.
func OfName(name, usedIn string) []string {
	messages := utilvalidation.IsDNS1123Label(name)
	if len(messages) == 0 {
		return nil
	}
	return []string{fmt.Sprintf(
		"metadata.name: this is used in %s, which can result in surprising behavior; a DNS label is recommended: %v",
		usedIn, messages,
	)}
}

// warner is what there may be to say something about, and where it is.
type warner struct {
	spec                  *corev1.PodSpec
	annotations           map[string]string
	path, annotationsPath *field.Path
}

// warnings takes what else is to be said about each container.
func (n warner) warnings(each func(*corev1.Container) []string) []string {
	spec, path := n.spec, n.path
	var w []string
	w = append(w, oldNodeLabels(spec, path)...)
	w = append(w, spreadWarnings(spec, path.Child("topologySpreadConstraints"))...)
	w = append(w, n.oldAnnotations()...)
	w = append(w, volumeWarnings(spec.Volumes, path.Child("volumes"))...)
	w = append(w, hostAliasWarnings(spec.HostAliases, path.Child("hostAliases"))...)
	w = append(w, pullSecretWarnings(spec.ImagePullSecrets, path.Child("imagePullSecrets"))...)
	w = append(w, fractionalBytes(spec.Overhead, path.Child("overhead"))...)
	w = append(w, n.podSeccomp()...)
	containers := containersWithPaths(spec, path)
	for _, c := range containers {
		w = append(w, n.containerSeccomp(c.container)...)
		w = append(w, each(c.container)...)
		w = append(w, fractionalBytes(c.container.Resources.Limits, c.path.Child("resources", "limits"))...)
		w = append(w, fractionalBytes(c.container.Resources.Requests, c.path.Child("resources", "requests"))...)
		w = append(w, repeatedEnv(c.container.Env, c.path.Child("env"))...)
	}
	w = append(w, portWarnings(containers)...)
	if grace := spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		w = append(w, fmt.Sprintf("%s: must be >= 0; negative values are invalid and will be treated as 1",
			path.Child("terminationGracePeriodSeconds")))
	}
	w = append(w, selectorWarnings(spec.Affinity, path.Child("affinity"))...)
	return append(w, addressWarnings(spec, path)...)
}

// located is a container and where it is.
type located struct {
	container *corev1.Container
	path      *field.Path
}

func containersWithPaths(spec *corev1.PodSpec, path *field.Path) []located {
	var out []located
	for i := range spec.InitContainers {
		out = append(out, located{&spec.InitContainers[i], path.Child("initContainers").Index(i)})
	}
	for i := range spec.Containers {
		out = append(out, located{&spec.Containers[i], path.Child("containers").Index(i)})
	}
	return out
}

// renamedLabels are the node labels whose names have changed.
var renamedLabels = map[string]string{
	"beta.kubernetes.io/arch":           `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":             `deprecated since v1.14; use "kubernetes.io/os" instead`,
	corev1.LabelFailureDomainBetaRegion: `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	corev1.LabelFailureDomainBetaZone:   `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	corev1.LabelInstanceType:            `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
}

// RenamedLabel says what to use in place of a node label whose name has changed.
func RenamedLabel(key string) (why string, renamed bool) {
	why, renamed = renamedLabels[key]
	return why, renamed
}

func oldNodeLabels(spec *corev1.PodSpec, path *field.Path) []string {
	var w []string
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		if why, ok := renamedLabels[key]; ok {
			w = append(w, fmt.Sprintf("%s: %s", path.Child("nodeSelector").Key(key), why))
		}
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return w
	}
	term := func(t *corev1.NodeSelectorTerm, at *field.Path, optional bool) {
		for i, r := range t.MatchExpressions {
			if why, ok := renamedLabels[r.Key]; ok {
				w = append(w, fmt.Sprintf("%s: %s is %s", at.Child("matchExpressions").Index(i).Child("key"), r.Key, why))
			}
			if optional { // else it is an error
				w = append(w, impossibleValues(r.Values, at.Child("matchExpressions").Index(i).Child("values"))...)
			}
		}
	}
	n := spec.Affinity.NodeAffinity
	at := path.Child("affinity", "nodeAffinity")
	if must := n.RequiredDuringSchedulingIgnoredDuringExecution; must != nil {
		for i := range must.NodeSelectorTerms {
			term(&must.NodeSelectorTerms[i], at.Child(placement.RequiredTerms, "nodeSelectorTerms").Index(i), false)
		}
	}
	for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
		term(&n.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference,
			at.Child(placement.PreferredTerms).Index(i).Child("preference"), true)
	}
	return w
}

// impossibleValues are values that no label can have.
func impossibleValues(values []string, path *field.Path) []string {
	var w []string
	for i, v := range values {
		for _, m := range utilvalidation.IsValidLabelValue(v) {
			w = append(w, fmt.Sprintf("%s: %s is invalid, %s", path.Index(i), v, m))
		}
	}
	return w
}

func addressWarnings(spec *corev1.PodSpec, path *field.Path) []string {
	var w []string
	if spec.DNSConfig != nil {
		for i, ip := range spec.DNSConfig.Nameservers {
			w = append(w, utilvalidation.GetWarningsForIP(path.Child("dnsConfig", "nameservers").Index(i), ip)...)
		}
	}
	for i, a := range spec.HostAliases {
		w = append(w, utilvalidation.GetWarningsForIP(path.Child("hostAliases").Index(i).Child("ip"), a.IP)...)
	}
	return w
}

const matchesNoPod = "a null labelSelector results in matching no pod"

func spreadWarnings(spec *corev1.PodSpec, path *field.Path) []string {
	var w []string
	for i, c := range spec.TopologySpreadConstraints {
		if why, ok := renamedLabels[c.TopologyKey]; ok {
			w = append(w, fmt.Sprintf("%s: %s is %s", path.Index(i).Child("topologyKey"), c.TopologyKey, why))
		}
		if c.LabelSelector == nil {
			w = append(w, fmt.Sprintf("%s: %s", path.Index(i).Child("labelSelector"), matchesNoPod))
		}
	}
	return w
}

func selectorWarnings(a *corev1.Affinity, path *field.Path) []string {
	var w []string
	check := func(selector *metav1.LabelSelector, terms *field.Path, i int, below ...string) {
		if selector == nil {
			at := terms.Index(i)
			for _, name := range below {
				at = at.Child(name)
			}
			w = append(w, fmt.Sprintf("%s: %s", at.Child("labelSelector"), matchesNoPod))
		}
	}
	terms := func(must []corev1.PodAffinityTerm, want []corev1.WeightedPodAffinityTerm, at *field.Path) {
		required, preferred := at.Child(placement.RequiredTerms), at.Child(placement.PreferredTerms)
		for i := range must {
			check(must[i].LabelSelector, required, i)
		}
		for i := range want {
			check(want[i].PodAffinityTerm.LabelSelector, preferred, i, "podAffinityTerm")
		}
	}
	if a == nil {
		return nil
	}
	if p := a.PodAffinity; p != nil {
		terms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution,
			path.Child("podAffinity"))
	}
	if p := a.PodAntiAffinity; p != nil {
		terms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution,
			path.Child("podAntiAffinity"))
	}
	return w
}

func pullSecretWarnings(secrets []corev1.LocalObjectReference, path *field.Path) []string {
	var w []string
	seen := sets.New[string]()
	for i, s := range secrets {
		if seen.Has(s.Name) {
			w = append(w, fmt.Sprintf("%s: duplicate name %q", path.Index(i).Child("name"), s.Name))
		}
		seen.Insert(s.Name)
	}
	for i, s := range secrets {
		if s.Name == "" {
			w = append(w, fmt.Sprintf("%s: invalid empty name %q", path.Index(i).Child("name"), s.Name))
		}
	}
	return w
}

func hostAliasWarnings(aliases []corev1.HostAlias, path *field.Path) []string {
	var w []string
	seen := sets.New[string]()
	for i, a := range aliases {
		if seen.Has(a.IP) {
			w = append(w, fmt.Sprintf("%s: duplicate ip %q", path.Index(i).Child("ip"), a.IP))
		}
		seen.Insert(a.IP)
	}
	return w
}

func repeatedEnv(env []corev1.EnvVar, path *field.Path) []string {
	var w []string
	seen := sets.New[string]()
	for i, e := range env {
		// A value that adds to that of the variable it replaces does so on purpose.
		before := "$(" + e.Name + ")"
		if seen.Has(e.Name) && (e.Value == before || !strings.Contains(e.Value, before)) {
			w = append(w, fmt.Sprintf("%s: hides previous definition of %q, which may be dropped when using apply",
				path.Index(i), e.Name))
		}
		seen.Insert(e.Name)
	}
	return w
}

func fractionalBytes(list corev1.ResourceList, path *field.Path) []string {
	var w []string
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if q, ok := list[name]; ok && q.MilliValue()%1000 != 0 {
			w = append(w, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer", path.Key(string(name)),
				q.String()))
		}
	}
	return w
}
