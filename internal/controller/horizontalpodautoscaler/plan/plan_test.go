package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

type autoscaler = autoscalingv2.HorizontalPodAutoscaler

func quantity(text string) *resource.Quantity { return ptr.To(resource.MustParse(text)) }

// scaler wants between 2 and 10 pods, by the metrics given.
func scaler(metrics ...autoscalingv2.MetricSpec) *autoscaler {
	a := &autoscaler{ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 4}}
	a.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: ptr.To[int32](2), MaxReplicas: 10, Metrics: metrics}
	return a
}

func cpu(percent int32) autoscalingv2.MetricSpec {
	target := autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent}
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: target},
	}
}

func external(t autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType,
		External: &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: "queue"}, Target: t,
		}}
}

func averageOf(text string) autoscalingv2.MetricTarget {
	return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: quantity(text)}
}

func valueOf(text string) autoscalingv2.MetricTarget {
	return autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: quantity(text)}
}

// aPod is ready since an hour, and asks for a whole processor.
func aPod(name string, edits ...func(*corev1.Pod)) corev1.Pod {
	hourAgo := metav1.NewTime(noon.Add(-time.Hour))
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &hourAgo,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: hourAgo}},
	}}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
	}}}
	for _, edit := range edits {
		edit(&p)
	}
	return p
}

func unready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

// justStarted has been ready for a few seconds.
func justStarted(p *corev1.Pod) {
	p.Status.StartTime = ptr.To(metav1.NewTime(noon.Add(-20 * time.Second)))
	p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(-10 * time.Second))
}

// used are values of pods, "a=500 b=250", in thousandths, taken over the half minute before now.
func used(text string) Reading {
	out := Reading{Pods: map[string]PodValue{}}
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		v := PodValue{Time: noon, Window: 30 * time.Second}
		_, err := fmt.Sscan(value, &v.Milli)
		if err != nil {
			panic(err)
		}
		out.Pods[name] = v
	}
	return out
}

// said is a result in one line: the number of pods, and each condition's reason, with ! if it does not hold.
func said(r Result) string {
	words := []string{fmt.Sprint(r.Replicas)}
	for _, c := range r.Status.Conditions {
		words = append(words, mark(c.Status)+c.Reason)
	}
	return strings.Join(words, " ")
}

func mark(s corev1.ConditionStatus) string {
	if s == corev1.ConditionFalse {
		return "!"
	}
	return ""
}

// TestOfResources: by what pods use, and what of that counts.
func TestOfResources(t *testing.T) {
	gone := func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(noon)) }
	pending := func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }
	neverReady := func(p *corev1.Pod) {
		unready(p)
		p.Status.Conditions[0].LastTransitionTime = *p.Status.StartTime
	}
	for name, c := range map[string]struct {
		pods []corev1.Pod
		used string
		want int32
	}{
		"more":                          {[]corev1.Pod{aPod("a"), aPod("b"), aPod("c")}, "a=1000 b=1000 c=1000", 6},
		"rounded up":                    {[]corev1.Pod{aPod("a"), aPod("b"), aPod("c")}, "a=600 b=600 c=600", 4},
		"near enough":                   {[]corev1.Pod{aPod("a"), aPod("b"), aPod("c")}, "a=540 b=540 c=540", 3},
		"less":                          {[]corev1.Pod{aPod("a"), aPod("b"), aPod("c")}, "a=200 b=200 c=200", 2},
		"what is over does not count":   {[]corev1.Pod{aPod("a"), aPod("b", gone), aPod("c")}, "a=1000 b=0 c=1000", 4},
		"others' pods do not count":     {[]corev1.Pod{aPod("a"), aPod("b"), aPod("c")}, "a=500 b=500 c=500 x=9000", 3},
		"missing is idle on the way up": {[]corev1.Pod{aPod("a"), aPod("b"), aPod("c")}, "a=1000 b=1000", 4},
		"missing is busy on the way down": {[]corev1.Pod{aPod("a"), aPod("b"), aPod("c")},
			"a=100 b=100", 3},
		"pending is idle on the way up":  {[]corev1.Pod{aPod("a"), aPod("b"), aPod("c", pending)}, "a=1000 b=1000", 4},
		"two pending turn the direction": {[]corev1.Pod{aPod("a"), aPod("b", pending), aPod("c", pending)}, "a=1000", 3},
		"pending is left out on the way down": {[]corev1.Pod{aPod("a"), aPod("b"), aPod("c", pending)},
			"a=300 b=300", 2},
		"a start is idle on the way up": {[]corev1.Pod{aPod("a"), aPod("b"), aPod("c", justStarted)}, "a=700 b=700 c=1000",
			3},
		"who was ready before counts": {[]corev1.Pod{aPod("a"), aPod("b"),
			aPod("c", unready, func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon) })},
			"a=1000 b=1000 c=1000", 6},
		"who was never ready is idle": {[]corev1.Pod{aPod("a"), aPod("b"), aPod("c", neverReady)},
			"a=1000 b=1000 c=1000", 4},
	} {
		in := Input{Autoscaler: scaler(cpu(50)), Scale: Scale{Wanted: 3, Observed: 3}, Pods: c.pods,
			Readings: []Reading{used(c.used)}, Now: noon}
		in.Past.Wishes = []Sample{{noon.Add(-time.Hour), 3}} // no window holds it
		if got := Decide(in); got.Replicas != c.want || got.Err != nil {
			t.Errorf("%s: got %d, %v; want %d", name, got.Replicas, got.Err, c.want)
		}
	}
}

// TestStatus: what the status tells, and since when.
func TestStatus(t *testing.T) {
	a := scaler(cpu(50))
	a.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{
		{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))},
	}
	in := Input{Autoscaler: a, Scale: Scale{Wanted: 2, Observed: 2}, Pods: []corev1.Pod{aPod("a"), aPod("b")},
		Readings: []Reading{used("a=900 b=700")}, Now: noon}
	r := Decide(in)
	if got, want := said(r), "4 ValidMetricFound ReadyForNewScale !DesiredWithinRange"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s := r.Status
	if *s.ObservedGeneration != 4 || s.CurrentReplicas != 2 || s.DesiredReplicas != 4 || len(a.Status.Conditions) != 1 {
		t.Errorf("the status is %+v", s)
	}
	if c := s.CurrentMetrics[0].Resource.Current; *c.AverageUtilization != 80 || c.AverageValue.String() != "800m" {
		t.Errorf("the metric is %+v", c)
	}
	if since := s.Conditions[0].LastTransitionTime; !since.Equal(ptr.To(metav1.NewTime(noon.Add(-time.Hour)))) {
		t.Errorf("active since %v", since)
	}
	if r.Why != "cpu resource utilization (percentage of request) above target" {
		t.Errorf("the reason is %s", r.Why)
	}
	done := Rescaled(in, r)
	if got := said(done); got != "4 ValidMetricFound SucceededRescale !DesiredWithinRange" ||
		!done.Status.LastScaleTime.Time.Equal(noon) ||
		done.Events[0].Message != "New size: 4; reason: cpu resource utilization (percentage of request) above target" {
		t.Errorf("after the change: %s, %+v", got, done)
	}
	failed := NotRescaled(in, r, errors.New("no"))
	if got := said(failed); got != "4 ValidMetricFound !FailedUpdateScale !DesiredWithinRange" ||
		failed.Status.LastScaleTime != nil ||
		failed.Status.DesiredReplicas != 0 || failed.Events[0].Reason != "FailedRescale" {
		t.Errorf("after a failure: %s, %+v", got, failed)
	}
	lost := Unreachable(a, History{}, errors.New("no such thing"), noon)
	if c := lost.Status.Conditions[1]; c.Reason != "FailedGetScale" || c.Status != corev1.ConditionFalse ||
		lost.Rescale || len(lost.Events) != 1 {
		t.Errorf("without a scale: %+v", lost)
	}
}

// TestBounds: without a metric being asked.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		wanted int32
		asks   bool
		want   string
	}{
		{0, false, "0 SucceededGetScale !ScalingDisabled"},
		{1, false, "2 SucceededGetScale"},
		{11, false, "10 SucceededGetScale"},
		{10, true, ""},
		{2, true, ""},
	} {
		in := Input{Autoscaler: scaler(cpu(50)), Scale: Scale{Wanted: c.wanted}, Now: noon}
		if asks := NeedsMetrics(in.Autoscaler, in.Scale); asks != c.asks {
			t.Errorf("with %d pods metrics are asked: %v", c.wanted, asks)
		}
		if c.asks {
			continue
		}
		if got := said(Decide(in)); got != c.want {
			t.Errorf("with %d pods: got %s, want %s", c.wanted, got, c.want)
		}
	}
}

// TestSeveralMetrics: the greatest wish counts. One that fails may stop the number from falling, never from rising.
func TestSeveralMetrics(t *testing.T) {
	metrics := []autoscalingv2.MetricSpec{external(averageOf("10")), external(valueOf("10"))}
	failed := Reading{Err: errors.New("no answer")}
	for name, c := range map[string]struct {
		readings []Reading
		want     string
	}{
		"the greatest": {[]Reading{{Milli: 60_000}, {Milli: 20_000}}, "8 ValidMetricFound"},
		"up by one":    {[]Reading{{Milli: 60_000}, failed}, "6 ValidMetricFound"},
		"not down":     {[]Reading{{Milli: 20_000}, failed}, "4 !FailedGetExternalMetric"},
		"none":         {[]Reading{failed, failed}, "4 !FailedGetExternalMetric"},
	} {
		in := Input{Autoscaler: scaler(metrics...), Scale: Scale{Wanted: 4, Observed: 4}, Readings: c.readings, Now: noon}
		in.Autoscaler.Status.DesiredReplicas = 7
		in.Pods = []corev1.Pod{aPod("a"), aPod("b"), aPod("c"), aPod("d")}
		r := Decide(in)
		got := fmt.Sprintln(r.Replicas)
		for _, condition := range r.Status.Conditions {
			if condition.Type == autoscalingv2.ScalingActive {
				got = strings.TrimSpace(got) + " " + mark(condition.Status) + condition.Reason
			}
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		if strings.Contains(c.want, "!") != (r.Status.DesiredReplicas == 7) {
			t.Errorf("%s: the status wants %d", name, r.Status.DesiredReplicas)
		}
	}
}

// TestValuesOfAll: metrics with one value for all pods, of which only those that are ready take a share.
func TestValuesOfAll(t *testing.T) {
	pods := []corev1.Pod{aPod("a"), aPod("b"), aPod("c", unready), aPod("d")}
	object := autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType,
		Object: &autoscalingv2.ObjectMetricSource{
			DescribedObject: autoscalingv2.CrossVersionObjectReference{Kind: "Service", Name: "web"},
			Metric:          autoscalingv2.MetricIdentifier{Name: "requests"}, Target: valueOf("10"),
		}}
	perPod := autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "requests"}, Target: averageOf("10"),
	}}
	for name, c := range map[string]struct {
		metric  autoscalingv2.MetricSpec
		reading Reading
		want    int32
		status  string
	}{
		"value":        {object, Reading{Milli: 20_000}, 6, `20`},
		"near enough":  {object, Reading{Milli: 10_900}, 4, `10900m`},
		"average":      {external(averageOf("10")), Reading{Milli: 55_000}, 6, `13750m`},
		"same average": {external(averageOf("10")), Reading{Milli: 42_000}, 4, `10500m`},
		"each pod":     {perPod, used("a=20000 b=20000 c=20000 d=20000"), 8, `20`},
	} {
		r := Decide(Input{Autoscaler: scaler(c.metric), Scale: Scale{Wanted: 4, Observed: 4}, Pods: pods,
			Readings: []Reading{c.reading}, Now: noon})
		if r.Replicas != c.want || r.Err != nil {
			t.Errorf("%s: got %d, %v; want %d", name, r.Replicas, r.Err, c.want)
		}
		var current autoscalingv2.MetricValueStatus
		switch s := r.Status.CurrentMetrics[0]; {
		case s.Object != nil:
			current = s.Object.Current
		case s.External != nil:
			current = s.External.Current
		case s.Pods != nil:
			current = s.Pods.Current
		}
		shown := current.Value
		if shown == nil {
			shown = current.AverageValue
		}
		if shown.String() != c.status {
			t.Errorf("%s: the status shows %s, want %s", name, shown, c.status)
		}
	}
}

// TestErrors: what cannot be reckoned is said, and nothing is changed.
func TestErrors(t *testing.T) {
	bare := aPod("a", func(p *corev1.Pod) { p.Spec.Containers[0].Resources = corev1.ResourceRequirements{} })
	for want, in := range map[string]Input{
		"missing request for cpu in container main of Pod a": {Pods: []corev1.Pod{bare},
			Readings: []Reading{used("a=1")}},
		"no pods returned by selector while calculating replica count": {Readings: []Reading{used("a=1")}},
		"did not receive metrics for targeted pods (pods might be unready)": {Pods: []corev1.Pod{aPod("a")},
			Readings: []Reading{used("")}},
		"no metrics returned matched known pods": {Pods: []corev1.Pod{aPod("a")},
			Readings: []Reading{used("x=1")}},
		"the HPA target's scale is missing a selector": {SelectorErr: &Failure{"SelectorRequired",
			errors.New("the HPA target's scale is missing a selector")}},
		"pods by selector app=web are controlled by multiple HPAs: [ns/a ns/web]": {SelectorErr: &Failure{Ambiguous,
			errors.New("pods by selector app=web are controlled by multiple HPAs: [ns/a ns/web]")}},
	} {
		in.Autoscaler, in.Scale, in.Now = scaler(cpu(50)), Scale{Wanted: 3, Observed: 3}, noon
		r := Decide(in)
		if r.Rescale || r.Err == nil || !strings.HasSuffix(r.Err.Error(), want) {
			t.Errorf("got %+v, want %s", r, want)
		}
		if !slices.ContainsFunc(r.Events, func(e Event) bool { return e.Message == want }) {
			t.Errorf("nobody is told of %s: %v", want, r.Events)
		}
	}
}

// played lets an external metric with an average of one ask for numbers of pods, one at a time, and returns what came of
// each: "15s 8" is a wish for eight pods, fifteen seconds after the one before.
func played(t *testing.T, b *autoscalingv2.HorizontalPodAutoscalerBehavior, start int32, script string) string {
	t.Helper()
	now, at, past := start, noon, History{}
	var out []string
	words := strings.Fields(script)
	for i := 0; i+1 < len(words); i += 2 {
		pause, err := time.ParseDuration(words[i])
		if err != nil {
			t.Fatal(err)
		}
		var wish int64
		_, err = fmt.Sscan(words[i+1], &wish)
		if err != nil {
			t.Fatal(err)
		}
		at = at.Add(pause)
		a := scaler(external(averageOf("1")))
		a.Spec.MinReplicas, a.Spec.MaxReplicas, a.Spec.Behavior = ptr.To[int32](1), 100, b
		in := Input{Autoscaler: a, Scale: Scale{Wanted: now, Observed: now}, Readings: []Reading{{Milli: wish * 1000}},
			Past: past, Now: at}
		r := Decide(in)
		if r.Rescale {
			r = Rescaled(in, r)
		}
		now, past = r.Replicas, r.History
		out = append(out, fmt.Sprint(now))
	}
	return strings.Join(out, " ")
}

func policies(selected autoscalingv2.ScalingPolicySelect, window int32,
	list ...autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
	return &autoscalingv2.HPAScalingRules{SelectPolicy: &selected, StabilizationWindowSeconds: &window, Policies: list}
}

// TestBehavior: how fast the number of pods may change, and how long a wish must last.
func TestBehavior(t *testing.T) {
	const most, least, off = autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect,
		autoscalingv2.DisabledPolicySelect
	pods := func(n, seconds int32) autoscalingv2.HPAScalingPolicy {
		return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: n, PeriodSeconds: seconds}
	}
	percent := func(n, seconds int32) autoscalingv2.HPAScalingPolicy {
		return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: n, PeriodSeconds: seconds}
	}
	free := policies(most, 0, percent(900, 1))
	freely := policies(most, 0, percent(100, 1))
	for name, c := range map[string]struct {
		up, down *autoscalingv2.HPAScalingRules
		start    int32
		script   string
		want     string
	}{
		"four a minute": {policies(most, 0, pods(4, 60)), freely, 1, "15s 50 15s 50 15s 50 15s 50 15s 50", "5 5 5 5 9"},
		"the faster": {policies(most, 0, pods(4, 15), percent(100, 15)), freely, 1, "15s 99 15s 99 15s 99 15s 99",
			"5 10 20 40"},
		"the slower": {policies(least, 0, pods(4, 15), percent(100, 15)), freely, 1,
			"15s 99 15s 99 15s 99 15s 99", "2 4 8 12"},
		"no way up":           {policies(off, 0, pods(4, 15)), freely, 3, "15s 9 15s 9", "3 3"},
		"no way down":         {free, policies(off, 0, pods(4, 15)), 3, "15s 1 10m 1", "3 3"},
		"two a minute down":   {free, policies(most, 0, pods(2, 60)), 10, "15s 1 15s 1 15s 1 15s 1 15s 1", "8 8 8 8 6"},
		"a tenth, down":       {free, policies(most, 0, percent(10, 15)), 80, "15s 1 15s 1 15s 1", "72 64 57"},
		"the lowest for 30 s": {policies(most, 30, percent(900, 1)), freely, 2, "0s 9 15s 9 20s 9 15s 5 15s 9", "2 2 9 5 5"},
		"the highest for 1 m": {free, policies(most, 60, percent(100, 1)), 9, "0s 2 30s 2 31s 2", "9 9 2"},
		"up and down count":   {policies(most, 0, pods(4, 60)), freely, 4, "0s 8 15s 4 15s 20 15s 20", "8 4 8 8"},
	} {
		b := &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: c.up, ScaleDown: c.down}
		if got := played(t, b, c.start, c.script); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	const byDefault = "4 8 16 32 50 1"
	if got := played(t, nil, 1, "0s 50 15s 50 15s 50 15s 1 4m 1 61s 1"); got != byDefault {
		t.Errorf("by default: got %s", got)
	}
}

// TestToleranceOfADirection: each direction may have its own.
func TestToleranceOfADirection(t *testing.T) {
	a := scaler(external(averageOf("1")))
	a.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleUp: policies(autoscalingv2.MaxChangePolicySelect, 0,
			autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 9, PeriodSeconds: 1}),
	}
	a.Spec.Behavior.ScaleUp.Tolerance = quantity("0.5")
	for milli, want := range map[int64]int32{5900: 4, 6100: 7, 3700: 4} {
		r := Decide(Input{Autoscaler: a, Scale: Scale{Wanted: 4, Observed: 4}, Readings: []Reading{{Milli: milli}},
			Now: noon})
		if r.Replicas != want {
			t.Errorf("%d: got %d, want %d", milli, r.Replicas, want)
		}
	}
}

// TestNothingIsChanged: what a decision was given stays as it was.
func TestNothingIsChanged(t *testing.T) {
	reading := used("a=900 b=900")
	before := maps.Clone(reading.Pods)
	past := History{Wishes: make([]Sample, 1, 8), Up: make([]Change, 1, 8)}
	past.Wishes[0] = Sample{noon, 3}
	in := Input{Autoscaler: scaler(cpu(50)), Scale: Scale{Wanted: 3, Observed: 3}, Readings: []Reading{reading},
		Past: past, Now: noon,
		Pods: []corev1.Pod{aPod("a"), aPod("b"), aPod("c")}}
	in.Autoscaler.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: policies(autoscalingv2.MaxChangePolicySelect, 0,
		autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 9, PeriodSeconds: 60})}
	want := in.Autoscaler.DeepCopy()
	first := Rescaled(in, Decide(in))
	second := Rescaled(in, Decide(in))
	if said(first) != said(second) || fmt.Sprint(first.History) != fmt.Sprint(second.History) ||
		!maps.Equal(before, reading.Pods) ||
		fmt.Sprint(want) != fmt.Sprint(in.Autoscaler) {
		t.Errorf("a second time: %+v, before %+v", second, first)
	}
	if past.Wishes[:2][1] != (Sample{}) || past.Up[:2][1] != (Change{}) {
		t.Errorf("the history was written to: %+v", past)
	}
}
