package eviction

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestParseRules(t *testing.T) {
	const hard = "memory.available<100"
	r, err := ParseRules(Texts{Hard: hard, Soft: "memory.available<200,nodefs.available<20%",
		SoftGrace: "memory.available=1m30s, nodefs.available=0s,pid.available=1s", Reclaim: "memory.available=50,imagefs.available=5%"})
	if err != nil || r.SoftGrace[MemoryAvailable] != 90*time.Second || len(r.Soft) != 2 || r.Reclaim.Keep(ImageFSAvailable, 1000) != 50 {
		t.Errorf("read as %+v, %v", r, err)
	}
	if r, err := ParseRules(Texts{Hard: None}); err != nil || len(r.Hard)+len(r.Soft)+len(r.Reclaim) != 0 {
		t.Errorf("nothing is read as %+v, %v", r, err)
	}
	for want, texts := range map[string]Texts{
		"--eviction-hard: threshold":      {Hard: "memory.available"},
		"--eviction-soft: unknown signal": {Hard: hard, Soft: "swap<1"},
		"--eviction-soft-grace-period: the soft threshold of memory.available needs a grace period": {Hard: hard, Soft: "memory.available<2"},
		"--eviction-soft-grace-period: soon is not a time":                                          {Hard: hard, SoftGrace: "memory.available=soon"},
		"--eviction-soft-grace-period: -1s is not a time":                                           {Hard: hard, SoftGrace: "memory.available=-1s"},
		"--eviction-soft-grace-period: \"memory.available\" is not of the form SIGNAL=VALUE":        {Hard: hard, SoftGrace: "memory.available"},
		"--eviction-minimum-reclaim: unknown signal \"swap\"":                                       {Hard: hard, Reclaim: "swap=1"},
		"--eviction-minimum-reclaim: lots is not an amount":                                         {Hard: hard, Reclaim: "memory.available=lots"},
		"--eviction-minimum-reclaim: signal memory.available is named twice":                        {Hard: hard, Reclaim: "memory.available=1,memory.available=2"},
	} {
		if _, err := ParseRules(texts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error with %q", texts, err, want)
		}
	}
}

// TestWatch looks at a node again and again: what is there, what is acted on, and what the node says of itself.
func TestWatch(t *testing.T) {
	hard := Rules{Hard: Thresholds{{Signal: MemoryAvailable, Amount: 100}}, Transition: time.Minute}
	soft := Rules{Soft: Thresholds{{Signal: MemoryAvailable, Amount: 200}}, SoftGrace: map[Signal]time.Duration{MemoryAvailable: 30 * time.Second}, Transition: time.Minute}
	both := Rules{Hard: hard.Hard, Soft: soft.Soft, SoftGrace: soft.SoftGrace, Transition: time.Minute}
	reclaim := Rules{Hard: hard.Hard, Reclaim: Thresholds{{Signal: MemoryAvailable, Amount: 50}}, Transition: time.Minute}
	type look struct {
		at        time.Duration
		available int64
		acts      string
		says      string
	}
	for _, tc := range []struct {
		name  string
		rules Rules
		looks []look
	}{
		{"a hard threshold is acted on at once, and the pressure is told for a while longer", hard, []look{
			{0, 100, "", ""}, {10, 99, "hard", "MemoryPressure"}, {20, 100, "", "MemoryPressure"}, {69, 500, "", "MemoryPressure"}, {70, 500, "", ""}}},
		{"a soft one after its grace period; the pressure is told at once", soft, []look{
			{0, 199, "", "MemoryPressure"}, {29, 199, "", "MemoryPressure"}, {30, 199, "soft", "MemoryPressure"}}},
		{"the grace period begins again when the threshold was not crossed in between", soft, []look{
			{0, 199, "", "MemoryPressure"}, {20, 200, "", "MemoryPressure"}, {30, 199, "", "MemoryPressure"}, {59, 199, "", "MemoryPressure"}, {60, 199, "soft", "MemoryPressure"}}},
		{"hard before soft", both, []look{{0, 50, "hard", "MemoryPressure"}, {30, 50, "hard soft", "MemoryPressure"}, {31, 150, "soft", "MemoryPressure"}}},
		{"more than the threshold must be free again", reclaim, []look{
			{0, 149, "", ""}, {1, 99, "hard", "MemoryPressure"}, {2, 149, "hard", "MemoryPressure"}, {3, 150, "", "MemoryPressure"}, {4, 149, "", "MemoryPressure"}}},
		{"what was not measured is not short", hard, []look{{0, 50, "hard", "MemoryPressure"}, {1, -1, "", "MemoryPressure"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var w Watch
			for _, l := range tc.looks {
				at, now := time.Unix(1e9, 0).Add(l.at*time.Second), Observations{MemoryAvailable: {Available: l.available, Capacity: 1000}}
				if l.available < 0 {
					now = nil
				}
				var acts, says []string
				for _, c := range w.Look(&tc.rules, now, at) {
					acts = append(acts, map[bool]string{true: "soft", false: "hard"}[c.Soft])
				}
				for _, kind := range w.Conditions(&tc.rules, at) {
					says = append(says, string(kind))
				}
				if strings.Join(acts, " ") != l.acts || strings.Join(says, " ") != l.says {
					t.Errorf("second %d, %d free: acts on %v and says %v, want %q and %q", l.at, l.available, acts, says, l.acts, l.says)
				}
			}
		})
	}
}

func TestConditionsOfSignals(t *testing.T) {
	var w Watch
	r, err := ParseRules(Texts{Hard: "pid.available<1%,nodefs.inodesFree<5%,memory.available<1"})
	if err != nil {
		t.Fatal(err)
	}
	w.Look(&r, Observations{PIDAvailable: {0, 100}, NodeFSInodesFree: {1, 100}, MemoryAvailable: {1, 1}, ImageFSAvailable: {0, 9}}, time.Unix(0, 0))
	if got := w.Conditions(&r, time.Unix(0, 0)); !slices.Equal(got, []corev1.NodeConditionType{corev1.NodeDiskPressure, corev1.NodePIDPressure}) {
		t.Errorf("the node says %v", got)
	}
}

func TestGrace(t *testing.T) {
	r := Rules{MaxPodGrace: 60}
	if r.Grace(Crossing{}) != 1 || r.Grace(Crossing{Soft: true}) != 60 {
		t.Error("a hard threshold leaves a second, a soft one what was configured")
	}
}

func TestRefuse(t *testing.T) {
	memory, disk := []corev1.NodeConditionType{corev1.NodeMemoryPressure}, []corev1.NodeConditionType{corev1.NodeDiskPressure}
	tolerates := func(key string) corev1.Pod {
		return corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}}}
	}
	for _, tc := range []struct {
		name      string
		pod       corev1.Pod
		static    bool
		pressures []corev1.NodeConditionType
		class     corev1.PodQOSClass
		want      string
	}{
		{"no pressure", corev1.Pod{}, false, nil, corev1.PodQOSBestEffort, ""},
		{"memory, and it asked for none", corev1.Pod{}, false, memory, corev1.PodQOSBestEffort, "The node had condition: [MemoryPressure]. "},
		{"memory, and it asked for some", corev1.Pod{}, false, memory, corev1.PodQOSBurstable, ""},
		{"memory, and it tolerates that", tolerates(corev1.TaintNodeMemoryPressure), false, memory, corev1.PodQOSBestEffort, ""},
		{"memory, and it tolerates everything", tolerates(""), false, memory, corev1.PodQOSBestEffort, ""},
		{"memory, and it tolerates something else", tolerates(corev1.TaintNodeDiskPressure), false, memory, corev1.PodQOSBestEffort, "The node had condition: [MemoryPressure]. "},
		{"disk, whatever it tolerates", tolerates(""), false, disk, corev1.PodQOSGuaranteed, "The node had condition: [DiskPressure]. "},
		{"both", tolerates(""), false, slices.Concat(memory, disk), corev1.PodQOSGuaranteed, "The node had condition: [MemoryPressure DiskPressure]. "},
		{"a critical pod", corev1.Pod{Spec: corev1.PodSpec{Priority: ptr.To[int32](2000001000)}}, false, disk, corev1.PodQOSBestEffort, ""},
		{"a static pod", corev1.Pod{}, true, disk, corev1.PodQOSBestEffort, ""},
	} {
		if got := Refuse(&tc.pod, tc.static, tc.pressures, tc.class); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
