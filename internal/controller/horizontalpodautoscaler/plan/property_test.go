package plan

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// FuzzDecide plays an autoscaler with rules, metrics and pods that chance makes up, and looks after each round whether
// the number of pods is within the bounds, and no further from that at the beginning of a policy's period than the
// policies allow. What the number was then is known from the play itself.
func FuzzDecide(f *testing.F) {
	for seed := range uint64(150) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		g := game{T: t, Rand: rand.New(rand.NewPCG(seed, 1)), now: noon}
		g.play()
	})
}

type game struct {
	*testing.T
	*rand.Rand
	now      time.Time
	past     History
	replicas int32
	// log is when the number became what; the first entry holds since ever.
	log []Sample
}

func (g *game) play() {
	a := g.autoscaler()
	g.replicas = *a.Spec.MinReplicas + g.Int32N(a.Spec.MaxReplicas-*a.Spec.MinReplicas+1)
	g.log = []Sample{{g.now.Add(-24 * time.Hour), g.replicas}}
	for range 40 {
		g.now = g.now.Add(time.Duration(g.IntN(40)) * time.Second)
		in := Input{Autoscaler: a, Scale: Scale{Wanted: g.replicas, Observed: g.Int32N(a.Spec.MaxReplicas + 1)},
			Pods: g.pods(), Past: g.past, Now: g.now}
		for range a.Spec.Metrics {
			in.Readings = append(in.Readings, g.reading(in.Pods))
		}
		r := Decide(in)
		if r.Rescale != (r.Replicas != g.replicas) {
			g.Fatalf("to change %d to %d: %v", g.replicas, r.Replicas, r.Rescale)
		}
		g.check(a, r.Replicas)
		switch {
		case r.Rescale && g.IntN(10) == 0:
			r = NotRescaled(in, r, errors.New("no"))
			g.past = r.History
			continue
		case r.Rescale:
			r = Rescaled(in, r)
			g.log = append(g.log, Sample{g.now, r.Replicas})
		}
		g.past, g.replicas = r.History, r.Replicas
		a = a.DeepCopy()
		a.Status = r.Status
	}
}

// check judges a number of pods.
func (g *game) check(a *autoscaler, next int32) {
	if next < *a.Spec.MinReplicas || next > a.Spec.MaxReplicas {
		g.Fatalf("%d pods are not between %d and %d", next, *a.Spec.MinReplicas, a.Spec.MaxReplicas)
	}
	b := a.Spec.Behavior
	switch {
	case b == nil && next > max(2*g.replicas, 4):
		g.Fatalf("from %d to %d at once", g.replicas, next)
	case b != nil && next > g.replicas && float64(next) > g.allowed(b.ScaleUp, 1):
		g.Fatalf("from %d to %d, with %s and %v", g.replicas, next, shown(b.ScaleUp), g.log)
	case b != nil && next < g.replicas && float64(next) < g.allowed(b.ScaleDown, -1):
		g.Fatalf("from %d to %d, with %s and %v", g.replicas, next, shown(b.ScaleDown), g.log)
	}
}

func shown(r *autoscalingv2.HPAScalingRules) string {
	return fmt.Sprintf("%v %s", r.Policies, *r.SelectPolicy)
}

// allowed is how far the rules let the number go in a direction, by the log.
func (g *game) allowed(r *autoscalingv2.HPAScalingRules, direction float64) float64 {
	if *r.SelectPolicy == autoscalingv2.DisabledPolicySelect {
		return float64(g.replicas)
	}
	furthest := math.Inf(int(direction))
	if *r.SelectPolicy == autoscalingv2.MaxChangePolicySelect {
		furthest = -furthest
	}
	for _, p := range r.Policies {
		began := float64(g.at(g.now.Add(-time.Duration(p.PeriodSeconds) * time.Second)))
		end := began + direction*float64(p.Value)
		if p.Type == autoscalingv2.PercentScalingPolicy {
			end = began + direction*began*float64(p.Value)/100
			// In favor of a change: a part of a pod is a whole one. What is below a millionth is the reckoning's own.
			end = direction * math.Ceil(direction*end-1e-6)
		}
		if (*r.SelectPolicy == autoscalingv2.MaxChangePolicySelect) == (direction > 0) {
			furthest = max(furthest, end)
		} else {
			furthest = min(furthest, end)
		}
	}
	return furthest
}

// at is the number of pods at a time.
func (g *game) at(when time.Time) (out int32) {
	for _, s := range g.log {
		if !s.Time.After(when) {
			out = s.Replicas
		}
	}
	return out
}

func (g *game) autoscaler() *autoscaler {
	all := []autoscalingv2.MetricSpec{cpu(1 + g.Int32N(150)), external(averageOf("3")), external(valueOf("3")), {
		Type: autoscalingv2.PodsMetricSourceType,
		Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "requests"},
			Target: averageOf("1500m")},
	}}
	g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	a := scaler(all[:1+g.IntN(len(all))]...)
	a.Spec.MinReplicas = ptr.To(1 + g.Int32N(10))
	a.Spec.MaxReplicas = *a.Spec.MinReplicas + g.Int32N(100)
	if g.IntN(4) > 0 {
		a.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: g.rules(), ScaleDown: g.rules()}
	}
	return a
}

func (g *game) rules() *autoscalingv2.HPAScalingRules {
	selected := []autoscalingv2.ScalingPolicySelect{
		autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect, autoscalingv2.DisabledPolicySelect,
	}[g.IntN(7)/3]
	out := policies(selected, g.Int32N(2)*g.Int32N(120))
	for range 1 + g.IntN(3) {
		kind := autoscalingv2.PodsScalingPolicy
		if g.IntN(2) == 0 {
			kind = autoscalingv2.PercentScalingPolicy
		}
		out.Policies = append(out.Policies, autoscalingv2.HPAScalingPolicy{Type: kind, Value: 1 + g.Int32N(150),
			PeriodSeconds: 1 + g.Int32N(180)})
	}
	return out
}

func (g *game) pods() (out []corev1.Pod) {
	for i := range g.Int32N(g.replicas + 3) {
		out = append(out, aPod(fmt.Sprint(i), func(p *corev1.Pod) {
			switch g.IntN(8) {
			case 0:
				unready(p)
			case 1:
				justStarted(p)
			case 2:
				p.Status.Phase = corev1.PodPending
			case 3:
				p.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
			case 4:
				p.Status = corev1.PodStatus{}
			}
		}))
	}
	return out
}

func (g *game) reading(pods []corev1.Pod) Reading {
	if g.IntN(8) == 0 {
		return Reading{Err: errors.New("no answer")}
	}
	out := Reading{Milli: g.Int64N(1000) * g.Int64N(1000), Pods: map[string]PodValue{}}
	if g.IntN(20) == 0 {
		out.Milli = math.MaxInt64 - g.Int64N(3)
	}
	for _, p := range pods {
		if g.IntN(6) > 0 {
			out.Pods[p.Name] = PodValue{Milli: g.Int64N(4000), Time: g.now, Window: 30 * time.Second}
		}
	}
	return out
}
