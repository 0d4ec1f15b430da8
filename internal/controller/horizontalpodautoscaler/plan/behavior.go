package plan

import (
	"math"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/utils/ptr"
)

// What holds for an autoscaler that says nothing else.
const (
	downWindow  = 5 * time.Minute
	upFactor    = 2 // as many pods at most as there are, so many times
	upAtLeast   = 4 // but so many in any case
	tooManyPods = "the desired replica count is more than the maximum replica count"
	tooFewPods  = "the desired replica count is less than the minimum replica count"
	tooFastUp   = "the desired replica count is increasing faster than the maximum scale rate"
	tooFastDown = "the desired replica count is decreasing faster than the maximum scale rate"
)

// bounded returns what of a wish is allowed now: by earlier wishes, by policies, and by the autoscaler's bounds.
func (d *decision) bounded(wish int32) int32 {
	b := d.Autoscaler.Spec.Behavior
	stable, reason := d.stabilized(wish)
	if stable != wish {
		message := "recent recommendations were higher than current one, applying the highest recent recommendation"
		if reason == "ScaleUpStabilized" {
			message = "recent recommendations were lower than current one, applying the lowest recent recommendation"
		}
		d.condition(autoscalingv2.AbleToScale, true, reason, message)
	} else {
		d.condition(autoscalingv2.AbleToScale, true, "ReadyForNewScale", "recommended size matches current size")
	}
	var out int32
	var message string
	if b == nil {
		out, reason, message = d.withinDefaults(stable)
	} else {
		out, reason, message = d.withinPolicies(stable, b)
	}
	limited := message != ""
	if !limited {
		reason, message = "DesiredWithinRange", "the desired count is within the acceptable range"
	}
	d.condition(autoscalingv2.ScalingLimited, limited, reason, message)
	return out
}

// windows are the times in which the lowest wish counts on the way up and the highest one on the way down.
func windows(b *autoscalingv2.HorizontalPodAutoscalerBehavior) (up, down time.Duration) {
	down = downWindow
	if b == nil {
		return 0, down
	}
	seconds := func(r *autoscalingv2.HPAScalingRules, otherwise time.Duration) time.Duration {
		if r == nil || r.StabilizationWindowSeconds == nil {
			return otherwise
		}
		return time.Duration(*r.StabilizationWindowSeconds) * time.Second
	}
	return seconds(b.ScaleUp, 0), seconds(b.ScaleDown, down)
}

// stabilized returns what remains of a wish beside those of the windows, and remembers it.
func (d *decision) stabilized(wish int32) (out int32, reason string) {
	up, down := windows(d.Autoscaler.Spec.Behavior)
	lowest, highest := wish, wish
	var kept []Sample
	for _, w := range d.History.Wishes {
		age := d.Now.Sub(w.Time)
		if age < up {
			lowest = min(lowest, w.Replicas)
		}
		if age < down {
			highest = max(highest, w.Replicas)
		}
		if age < max(up, down) {
			kept = append(kept, w)
		}
	}
	d.History.Wishes = append(kept, Sample{d.Now, wish})
	if d.Autoscaler.Spec.Behavior == nil {
		return highest, "ScaleDownStabilized"
	}
	// No further up than the lowest wish, and no further down than the highest.
	out = min(max(d.Scale.Wanted, lowest), highest)
	if wish >= d.Scale.Wanted {
		return out, "ScaleUpStabilized"
	}
	return out, "ScaleDownStabilized"
}

func (d *decision) withinDefaults(wish int32) (out int32, reason, message string) {
	lowest, highest := least(d.Autoscaler), d.Autoscaler.Spec.MaxReplicas
	fastest := int32(min(max(int64(d.Scale.Wanted)*upFactor, upAtLeast), math.MaxInt32))
	switch {
	case wish < lowest:
		return lowest, "TooFewReplicas", tooFewPods
	case wish > min(highest, fastest) && highest > fastest:
		return fastest, "ScaleUpLimit", tooFastUp
	case wish > highest:
		return highest, "TooManyReplicas", tooManyPods
	}
	return wish, "", ""
}

func (d *decision) withinPolicies(wish int32, b *autoscalingv2.HorizontalPodAutoscalerBehavior) (out int32, reason,
	message string) {
	now, lowest, highest := d.Scale.Wanted, least(d.Autoscaler), d.Autoscaler.Spec.MaxReplicas
	switch {
	case wish > now:
		fastest := max(d.limit(b.ScaleUp, 1), now)
		if wish > fastest && fastest < highest {
			return fastest, "ScaleUpLimit", tooFastUp
		}
		if wish > highest {
			return highest, "TooManyReplicas", tooManyPods
		}
	case wish < now:
		fastest := min(d.limit(b.ScaleDown, -1), now)
		if wish < fastest && fastest > lowest {
			return fastest, "ScaleDownLimit", tooFastDown
		}
		if wish < lowest {
			return lowest, "TooFewReplicas", tooFewPods
		}
	}
	return wish, "", ""
}

// limit is the number of pods that the rules of a direction allow, 1 for up and -1 for down.
func (d *decision) limit(r *autoscalingv2.HPAScalingRules, direction int32) int32 {
	now := d.Scale.Wanted
	if r == nil || ptr.Deref(r.SelectPolicy, autoscalingv2.MaxChangePolicySelect) == autoscalingv2.DisabledPolicySelect {
		return now
	}
	most := ptr.Deref(r.SelectPolicy, autoscalingv2.MaxChangePolicySelect) == autoscalingv2.MaxChangePolicySelect
	var limits []int32
	for _, p := range r.Policies {
		period := time.Duration(p.PeriodSeconds) * time.Second
		began := now - d.changed(d.History.Up, period) + d.changed(d.History.Down, period)
		limits = append(limits, policyLimit(p, began, direction))
	}
	if len(limits) == 0 {
		return now
	}
	if most == (direction > 0) {
		return slices.Max(limits)
	}
	return slices.Min(limits)
}

// policyLimit is the number of pods that a policy allows where there were so many when its period began.
func policyLimit(p autoscalingv2.HPAScalingPolicy, began, direction int32) int32 {
	var out float64
	switch share := float64(direction) * float64(p.Value); {
	case p.Type == autoscalingv2.PodsScalingPolicy:
		out = float64(began) + share
	case direction > 0:
		out = math.Ceil(float64(began) * (1 + share/100))
	default:
		out = math.Trunc(float64(began) * (1 + share/100))
	}
	return int32(min(max(out, math.MinInt32), math.MaxInt32))
}

func (d *decision) changed(changes []Change, period time.Duration) (out int32) {
	for _, c := range changes {
		if d.Now.Sub(c.Time) < period {
			out += c.Replicas
		}
	}
	return out
}

// remember keeps a change for as long as a policy may ask for it.
func (d *decision) remember(by int32) {
	b := d.Autoscaler.Spec.Behavior
	if b == nil {
		d.History.Up, d.History.Down = nil, nil
		return
	}
	longest := time.Duration(0)
	for _, r := range []*autoscalingv2.HPAScalingRules{b.ScaleUp, b.ScaleDown} {
		if r == nil {
			continue
		}
		for _, p := range r.Policies {
			longest = max(longest, time.Duration(p.PeriodSeconds)*time.Second)
		}
	}
	fresh := func(changes []Change) (out []Change) {
		for _, c := range changes {
			if d.Now.Sub(c.Time) < longest {
				out = append(out, c)
			}
		}
		return out
	}
	d.History.Up, d.History.Down = fresh(d.History.Up), fresh(d.History.Down)
	switch {
	case by > 0:
		d.History.Up = append(d.History.Up, Change{d.Now, by})
	case by < 0:
		d.History.Down = append(d.History.Down, Change{d.Now, -by})
	}
}
