package plan

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

// taints reads "key key:NoSchedule"; the effect is NoExecute where none is given.
func taints(s string) []corev1.Taint {
	var list []corev1.Taint
	for _, word := range strings.Fields(s) {
		key, effect, found := strings.Cut(word, ":")
		if !found {
			effect = string(corev1.TaintEffectNoExecute)
		}
		list = append(list, corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)})
	}
	return list
}

// tolerations reads "key key=seconds"; without seconds the key is tolerated for good.
func tolerations(s string) []corev1.Toleration {
	var list []corev1.Toleration
	for _, word := range strings.Fields(s) {
		key, seconds, found := strings.Cut(word, "=")
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists}
		if found {
			n, err := strconv.ParseInt(seconds, 10, 64)
			if err != nil {
				panic(err)
			}
			t.TolerationSeconds = &n
		}
		list = append(list, t)
	}
	return list
}

func pod(name, node, tolerated string) Pod {
	return Pod{
		NamespacedName: types.NamespacedName{Namespace: "default", Name: name}, UID: types.UID(name),
		Node: node, Tolerations: tolerations(tolerated),
	}
}

func TestWhenAPodLeaves(t *testing.T) {
	const never = -1
	for _, tc := range []struct {
		name      string
		taints    string
		tolerated string
		want      int // seconds
	}{
		{"no taint", "", "", never},
		{"a taint that only keeps new pods away", "a:NoSchedule", "", never},
		{"untolerated", "a", "", 0},
		{"tolerated for good", "a", "a", never},
		{"tolerated for a while", "a", "a=30", 30},
		{"tolerated for no time", "a", "a=0", 0},
		{"tolerated for less than no time", "a", "a=-5", 0},
		{"two taints, one untolerated", "a b", "a", 0},
		{"two taints, the shorter time wins", "a b", "a=30 b=20", 20},
		{"two taints, only one limited", "a b", "a b=20", 20},
		{"two tolerations for one taint, the first counts", "a", "a=30 a=20", 30},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := New()
			p.UpdateNode("n", taints(tc.taints), epoch)
			p.UpdatePod(pod("p", "n", tc.tolerated), epoch)
			next, ok := p.NextTick()
			if tc.want == never {
				if ok {
					t.Fatalf("the pod leaves after %v, want never", next.Sub(epoch))
				}
				return
			}
			if !ok || next != at(tc.want) {
				t.Fatalf("the pod leaves after %v (%v), want %d s", next.Sub(epoch), ok, tc.want)
			}
			if tc.want > 0 {
				if r := p.Ready(at(tc.want).Add(-time.Millisecond)); len(r.Evict) > 0 {
					t.Errorf("the pod leaves early")
				}
			}
			if r := p.Ready(at(tc.want)); len(r.Evict) != 1 || r.Evict[0].Name != "p" {
				t.Errorf("evicted in time: %v, want p", r.Evict)
			}
			if _, due := p.Due("p"); !due {
				t.Errorf("the pod is not due after it was handed out")
			}
		})
	}
}

func TestEmptyKeyToleratesEverything(t *testing.T) {
	p := New()
	p.UpdateNode("n", taints("a b"), epoch)
	everything := pod("p", "n", "")
	everything.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	p.UpdatePod(everything, epoch)
	if _, ok := p.NextTick(); ok {
		t.Error("a pod that tolerates everything leaves")
	}
}

func TestTaintTakenAwayCancels(t *testing.T) {
	p := New()
	p.UpdatePod(pod("p", "n", "a=30"), epoch)
	p.UpdateNode("n", taints("a"), at(5))
	p.UpdateNode("n", nil, at(20))
	if r := p.Ready(at(100)); len(r.Evict) != 0 || len(r.Cancelled) != 1 {
		t.Errorf("evicted %v, cancelled %v; want only p cancelled", r.Evict, r.Cancelled)
	}
}

func TestTaintTakenAwayAfterHandOut(t *testing.T) {
	p := New()
	p.UpdatePod(pod("p", "n", ""), epoch)
	p.UpdateNode("n", taints("a"), epoch)
	p.Ready(epoch)
	p.UpdateNode("n", nil, at(1))
	if _, due := p.Due("p"); due {
		t.Error("a pod that nobody has deleted yet must stay when its taint goes")
	}
}

func TestTimeRunsFromTheLaterOfTaintAndPod(t *testing.T) {
	p := New()
	p.UpdateNode("n", taints("a"), epoch)
	p.UpdatePod(pod("late", "n", "a=30"), at(10))
	if next, _ := p.NextTick(); next != at(40) {
		t.Errorf("the pod leaves after %v, want 40 s", next.Sub(epoch))
	}
}

func TestSilenceGoesOnUnderItsOtherName(t *testing.T) {
	p := New()
	p.UpdatePod(pod("p", "n", corev1.TaintNodeNotReady+"=300 "+corev1.TaintNodeUnreachable+"=300"), epoch)
	p.UpdateNode("n", taints(corev1.TaintNodeNotReady), epoch)
	p.UpdateNode("n", taints(corev1.TaintNodeUnreachable), at(200))
	if next, _ := p.NextTick(); next != at(300) {
		t.Errorf("the pod leaves after %v, want 300 s", next.Sub(epoch))
	}
}

func TestOtherNodeUpdatesMoveNothing(t *testing.T) {
	p := New()
	p.UpdatePod(pod("p", "n", "a=30"), epoch)
	p.UpdateNode("n", taints("a"), epoch)
	p.UpdateNode("n", taints("a b:NoSchedule"), at(20))
	if next, _ := p.NextTick(); next != at(30) {
		t.Errorf("the pod leaves after %v, want 30 s", next.Sub(epoch))
	}
}

// oracle computes everybody's deadline from the whole history.
type oracle struct {
	taints map[string]map[string]time.Time // node -> key -> since
	pods   map[string]Pod
	since  map[string]time.Time
}

func (o *oracle) deadline(name string) (time.Time, bool) {
	p := o.pods[name]
	var times []time.Time
	for key, since := range o.taints[p.Node] {
		taint := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
		i := slices.IndexFunc(p.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Logger{}, &taint, false) })
		switch {
		case i < 0:
			times = append(times, time.Time{})
		case p.Tolerations[i].TolerationSeconds != nil:
			start := since
			if o.since[name].After(start) {
				start = o.since[name]
			}
			times = append(times, start.Add(time.Duration(*p.Tolerations[i].TolerationSeconds)*time.Second))
		}
	}
	if len(times) == 0 {
		return time.Time{}, false
	}
	return slices.MinFunc(times, func(a, b time.Time) int { return a.Compare(b) }), true
}

// TestOracle: the pods that are due are at every moment those whose deadline is past.
func TestOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, now := New(), epoch
		o := &oracle{taints: map[string]map[string]time.Time{}, pods: map[string]Pod{}, since: map[string]time.Time{}}
		nodeName := rapid.SampledFrom([]string{"n1", "n2"})
		podName := rapid.SampledFrom([]string{"p1", "p2", "p3", "p4"})
		t.Repeat(map[string]func(*rapid.T){
			"taint": func(t *rapid.T) {
				node := nodeName.Draw(t, "node")
				keys := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.ID[string]).Draw(t, "keys")
				p.UpdateNode(node, taints(strings.Join(keys, " ")), now)
				before := o.taints[node]
				o.taints[node] = map[string]time.Time{}
				for _, key := range keys {
					o.taints[node][key] = now
					if since, had := before[key]; had {
						o.taints[node][key] = since
					}
				}
			},
			"pod": func(t *rapid.T) {
				name := podName.Draw(t, "pod")
				if _, exists := o.pods[name]; exists {
					return
				}
				tolerated := rapid.SampledFrom([]string{"", "a=3", "a b=5", "a=9 b=2 c", "b c"}).Draw(t, "tolerated")
				o.pods[name] = pod(name, nodeName.Draw(t, "node"), tolerated)
				o.since[name] = now
				p.UpdatePod(o.pods[name], now)
			},
			"delete": func(t *rapid.T) {
				name := podName.Draw(t, "pod")
				delete(o.pods, name)
				p.DeletePod(types.UID(name))
			},
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 4).Draw(t, "seconds")) * time.Second)
			},
			"": func(t *rapid.T) {
				p.Ready(now)
				for _, name := range slices.Sorted(maps.Keys(o.pods)) {
					deadline, leaves := o.deadline(name)
					want := leaves && !deadline.After(now)
					if _, got := p.Due(types.UID(name)); got != want {
						t.Fatalf("%s is due: %v, want %v (deadline %v, now %v)", name, got, want, deadline.Sub(epoch), now.Sub(epoch))
					}
				}
			},
		})
	})
}
