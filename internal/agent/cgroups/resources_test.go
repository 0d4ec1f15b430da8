package cgroups

import (
	"maps"
	"testing"

	library "github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// amounts are resources by name, as 100m and 10Mi.
func amounts(list ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(list); i += 2 {
		out[corev1.ResourceName(list[i])] = resource.MustParse(list[i+1])
	}
	return out
}

// testPod has one container with such requests and limits; limits alone are requests, too, as the API has it.
func testPod(uid string, requests, limits corev1.ResourceList) *corev1.Pod {
	if requests == nil {
		requests = limits
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}}}}
}

func TestLimitsOfPods(t *testing.T) {
	pod := testPod("a", nil, amounts("cpu", "500m", "memory", "10Mi"))
	if got, want := limitsOf(pod), (limits{500, 10 << 20}); got != want {
		t.Errorf("limits %+v, want %+v", got, want)
	}
	// With a second container that has no limit, the pod has none.
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "d"})
	if got := limitsOf(pod); got != (limits{}) {
		t.Errorf("limits %+v, want none", got)
	}
	if r := limitsOf(pod).resources(); r.CpuQuota != -1 || r.Memory != -1 {
		t.Errorf("no limits are %+v: those of before would stay", r)
	}
	pod.Spec.Resources = &corev1.ResourceRequirements{Limits: amounts("cpu", "1", "memory", "100Mi")}
	if got, want := limitsOf(pod), (limits{1000, 100 << 20}); got != want {
		t.Errorf("with a limit of the pod as a whole %+v, want %+v", got, want)
	}
}

func TestSharesAndWeights(t *testing.T) {
	for milli, want := range map[int64][2]int64{0: {2, 1}, 1: {2, 1}, 100: {102, 17}, 1000: {1024, 100}, 256000: {262144, 10000}, 1 << 40: {262144, 10000}} {
		if got := CPUShares(milli); got != want[0] || weightOf(got) != want[1] {
			t.Errorf("%d thousandths are %d shares and a weight of %d, want %v", milli, got, weightOf(got), want)
		}
	}
	if CPUQuota(1) != 1000 || CPUQuota(500) != 50000 {
		t.Errorf("quotas %d and %d", CPUQuota(1), CPUQuota(500))
	}
}

func TestPageSize(t *testing.T) {
	for bytes, want := range map[int64]string{64 << 10: "64KB", 2 << 20: "2MB", 32 << 20: "32MB", 1 << 30: "1GB", 16 << 30: "16GB"} {
		if got := pageSize(bytes); got != want {
			t.Errorf("%d bytes are %s, want %s", bytes, got, want)
		}
	}
}

// What is asked for of huge pages can be had, and nothing of other sizes; what the machine cannot limit is left out.
func TestPageLimits(t *testing.T) {
	got := map[string]uint64{}
	for _, l := range PageLimits(amounts("hugepages-2Mi", "6Mi", "hugepages-64Ki", "1Mi", "memory", "10Mi"), []string{"2MB", "1GB"}) {
		got[l.Pagesize] = l.Limit
	}
	if want := map[string]uint64{"2MB": 6 << 20, "1GB": 0}; !maps.Equal(got, want) {
		t.Errorf("limits %v, want %v", got, want)
	}
}

func TestHigher(t *testing.T) {
	for _, c := range []struct {
		limit int64
		now   string
		want  bool
	}{
		{200, "100\n", true}, {100, "100\n", false}, {50, "100\n", false}, {-1, "100\n", true}, {0, "100", true},
		{100, "max\n", false}, {-1, "max 100000\n", false}, {70000, "50000 100000\n", true}, {30000, "50000 100000\n", false}, {100, "-1\n", false},
	} {
		if got := higher(c.limit, c.now); got != c.want {
			t.Errorf("%d is above %q: %t", c.limit, c.now, got)
		}
	}
}

func TestShareInTheWayOfAVersion(t *testing.T) {
	one, two := &library.Resources{}, &library.Resources{}
	setShares(one, 1024, false)
	setShares(two, 1024, true)
	if one.CpuShares != 1024 || one.CpuWeight != 0 || two.CpuWeight != 100 || two.CpuShares != 0 {
		t.Errorf("version 1: %d and %d, version 2: %d and %d", one.CpuShares, one.CpuWeight, two.CpuShares, two.CpuWeight)
	}
}
