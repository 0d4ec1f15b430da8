package quota

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	resourcehelper "k8s.io/component-helpers/resource"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// podCount is the number of pods, of those too that have ended.
const podCount corev1.ResourceName = "count/pods"

// podNames are what pods use, besides huge pages and devices.
var podNames = []corev1.ResourceName{
	podCount, corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
}

// demanded are what each container must say of itself where a quota limits it.
var demanded = sets.New(
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
)

// pods measures pods.
type pods struct {
	list generic.ListFuncByNamespace
	now  func() time.Time
}

var _ quota.Evaluator = &pods{}

// GroupResource implements quota.Evaluator.
func (p *pods) GroupResource() schema.GroupResource { return corev1.Resource("pods") }

// Handles implements quota.Evaluator: what a pod uses grows after its creation only where it is resized.
func (p *pods) Handles(a admission.Attributes) bool {
	return a.GetSubresource() == "" && a.GetOperation() == admission.Create ||
		a.GetSubresource() == "resize" && a.GetOperation() == admission.Update
}

// Constraints implements quota.Evaluator.
func (p *pods) Constraints(required []corev1.ResourceName, item runtime.Object) error {
	pod, err := podOf(item)
	if err != nil {
		return err
	}
	need := sets.New(required...).Intersection(demanded)
	if r := pod.Spec.Resources; r != nil {
		need = need.Difference(namesOf(r.Requests, r.Limits))
	}
	missing := map[string][]string{}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			for name := range need.Difference(namesOf(list[i].Resources.Requests, list[i].Resources.Limits)) {
				missing[string(name)] = append(missing[string(name)], list[i].Name)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var texts []string
	for _, name := range sets.List(sets.KeySet(missing)) {
		containers := missing[name]
		slices.Sort(containers)
		texts = append(texts, fmt.Sprintf("%s for: %s", name, strings.Join(slices.Compact(containers), ",")))
	}
	return errors.New("must specify " + strings.Join(texts, "; "))
}

func namesOf(requests, limits corev1.ResourceList) sets.Set[corev1.ResourceName] {
	return sets.KeySet(computed(requests, limits))
}

// Matches implements quota.Evaluator.
func (p *pods) Matches(q *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(q, item, p.MatchingResources, podInScope)
}

// MatchingResources implements quota.Evaluator.
func (p *pods) MatchingResources(input []corev1.ResourceName) []corev1.ResourceName {
	out := quota.Intersection(input, podNames)
	for _, name := range input {
		device, asked := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
		if isHugePages(string(name)) || asked && (isHugePages(device) || strings.Contains(device, "/")) {
			out = append(out, name)
		}
	}
	return out
}

func isHugePages(name string) bool { return strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) }

// MatchingScopes implements quota.Evaluator.
func (p *pods) MatchingScopes(item runtime.Object,
	scopes []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	out := []corev1.ScopedResourceSelectorRequirement{}
	for _, s := range scopes {
		ok, err := podInScope(s, item)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, s)
		}
	}
	return out, nil
}

// UncoveredQuotaScopes implements quota.Evaluator.
func (p *pods) UncoveredQuotaScopes(limited,
	matched []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	out := []corev1.ScopedResourceSelectorRequirement{}
	for _, l := range limited {
		if !slices.ContainsFunc(matched, func(m corev1.ScopedResourceSelectorRequirement) bool {
			return m.ScopeName == l.ScopeName
		}) {
			out = append(out, l)
		}
	}
	return out, nil
}

// Usage implements quota.Evaluator.
func (p *pods) Usage(item runtime.Object) (corev1.ResourceList, error) {
	pod, err := podOf(item)
	if err != nil {
		return nil, err
	}
	out := corev1.ResourceList{podCount: *resource.NewQuantity(1, resource.DecimalSI)}
	if !uses(pod, p.now()) {
		return out, nil
	}
	out[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	return quota.Add(out, computed(resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options))), nil
}

// UsageStats implements quota.Evaluator.
func (p *pods) UsageStats(options quota.UsageStatsOptions) (quota.UsageStats, error) {
	return generic.CalculateUsageStats(options, p.list, podInScope, p.Usage)
}

// uses says whether a pod still uses anything: one that has ended does not, nor one that should be gone by now, because
// nobody on its node answers.
func uses(pod *corev1.Pod, now time.Time) bool {
	if podfacts.IsTerminal(pod) {
		return false
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return true
	}
	return !now.After(pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second))
}

// Expires says when a pod that is being deleted stops to use anything, whether or not it is gone by then.
func Expires(pod *corev1.Pod) (time.Time, bool) {
	if podfacts.IsTerminal(pod) || pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return time.Time{}, false
	}
	return pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second), true
}

// computed are requests and limits under the names that quotas have for them.
func computed(requests, limits corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, amount := range requests {
		switch {
		case name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
			isHugePages(string(name)):
			out[name], out[corev1.DefaultResourceRequestsPrefix+name] = amount, amount
		case strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix):
			out[corev1.DefaultResourceRequestsPrefix+name] = amount
		}
	}
	measured := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	for _, name := range measured {
		if amount, ok := limits[name]; ok {
			out["limits."+name] = amount
		}
	}
	return out
}

func podOf(item runtime.Object) (*corev1.Pod, error) {
	pod, ok := item.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("expected a Pod but got a %T", item)
	}
	return pod, nil
}

// podInScope implements generic.MatchesScopeFunc.
func podInScope(s corev1.ScopedResourceSelectorRequirement, item runtime.Object) (bool, error) {
	pod, err := podOf(item)
	if err != nil {
		return false, err
	}
	ends := pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return ends, nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !ends, nil
	case corev1.ResourceQuotaScopeBestEffort:
		return podfacts.QOS(pod) == corev1.PodQOSBestEffort, nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return podfacts.QOS(pod) != corev1.PodQOSBestEffort, nil
	case corev1.ResourceQuotaScopePriorityClass:
		return inClass(s, pod.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(pod.Spec.Affinity), nil
	}
	return false, nil
}

var operators = map[corev1.ScopeSelectorOperator]selection.Operator{
	corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn,
	corev1.ScopeSelectorOpExists: selection.Exists, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
}

func inClass(s corev1.ScopedResourceSelectorRequirement, class string) (bool, error) {
	requirement, err := labels.NewRequirement(string(s.ScopeName), operators[s.Operator], s.Values)
	if err != nil {
		return false, fmt.Errorf("failed to parse and convert selector: %w", err)
	}
	set := labels.Set{}
	if class != "" {
		set[string(s.ScopeName)] = class
	}
	return requirement.Matches(set), nil
}

// crossesNamespaces says whether a pod's affinity is about pods of other namespaces.
func crossesNamespaces(a *corev1.Affinity) bool {
	var terms []corev1.PodAffinityTerm
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for _, p := range preferred {
			terms = append(terms, p.PodAffinityTerm)
		}
	}
	if a != nil && a.PodAffinity != nil {
		add(
			a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
		)
	}
	if a != nil && a.PodAntiAffinity != nil {
		add(
			a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
		)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool {
		return len(t.Namespaces) > 0 || t.NamespaceSelector != nil
	})
}
