package admit

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

var onDelete = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}

func rolling(maxUnavailable int) appsv1.DaemonSetUpdateStrategy {
	return appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromInt(maxUnavailable))},
	}
}

func setOf(s appsv1.DaemonSetUpdateStrategy, annotations ...string) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{UpdateStrategy: s}}
	for i := 0; i < len(annotations); i += 2 {
		metav1.SetMetaDataAnnotation(&ds.ObjectMeta, annotations[i], annotations[i+1])
	}
	return ds
}

// stored is what is stored of a write.
func stored(t testing.TB, w DaemonSetWrite) *appsv1.DaemonSet {
	t.Helper()
	s := DaemonSet(w)
	if s.Refusal != "" {
		t.Fatalf("refused: %s", s.Refusal)
	}
	if s.Patch == nil {
		return w.New.DeepCopy()
	}
	out := &appsv1.DaemonSet{}
	apply(t, encode(t, w.New), s.Patch, out)
	return out
}

// applies is the entry of a manager that applied a field of the update strategy.
func applies(manager, name string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply,
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:updateStrategy":{"` + name + `":{}}}}`),
	}
}

const applied = corev1.LastAppliedConfigAnnotation

// TestDaemonSetsAreStored plays what people and their tools write.
func TestDaemonSetsAreStored(t *testing.T) {
	kept := `{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":3}}`
	says := func(strategy string) string { return fmt.Sprintf(`{"spec":{"updateStrategy":{"type":%q}}}`, strategy) }
	follows := setOf(onDelete, UpdateStrategy, kept)
	held, limits := setOf(onDelete, UpdateStrategy, kept), setOf(onDelete, UpdateStrategy, kept)
	held.ManagedFields = []metav1.ManagedFieldsEntry{applies("flux", "f:type")}
	limits.ManagedFields = []metav1.ManagedFieldsEntry{applies("flux", "f:rollingUpdate")}
	none := setOf(onDelete, UpdateStrategy, kept)
	none.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "flux", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`),
	}}
	heldAlone := held.DeepCopy()
	heldAlone.Annotations = nil
	// at is what is held since some time, with other changes.
	at := func(second int64, change func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
		out := held.DeepCopy()
		out.ManagedFields[0].Time = ptr.To(metav1.Unix(second, 0))
		change(out)
		return out
	}
	others := func(ds *appsv1.DaemonSet) {
		edit := metav1.ManagedFieldsEntry{Manager: "kubectl-edit", Operation: metav1.ManagedFieldsOperationUpdate}
		ds.ManagedFields = append(ds.ManagedFields, edit)
	}
	alone := func(*appsv1.DaemonSet) {}
	slower := func(ds *appsv1.DaemonSet) { ds.Spec.MinReadySeconds = 5 }
	bare := func(ds *appsv1.DaemonSet) { ds.Annotations = nil }
	relabelled := follows.DeepCopy()
	relabelled.Spec.MinReadySeconds = 5
	for name, c := range map[string]struct {
		w     DaemonSetWrite
		want  *appsv1.DaemonSet
		warns bool
	}{
		"created":                             {w: DaemonSetWrite{New: setOf(rolling(3)), Standing: Follows}, want: follows},
		"applied again":                       {w: DaemonSetWrite{Old: follows, New: setOf(rolling(3), UpdateStrategy, kept), Standing: Follows}, want: follows},
		"replaced by the manifest":            {w: DaemonSetWrite{Old: follows, New: setOf(rolling(3)), Standing: Follows}, want: follows},
		"restored from a backup":              {w: DaemonSetWrite{New: follows, Standing: Follows}, want: follows},
		"another limit, by a patch":           {w: DaemonSetWrite{Old: setOf(onDelete, UpdateStrategy, `{"type":"RollingUpdate"}`), New: setOf(appsv1.DaemonSetUpdateStrategy{Type: onDelete.Type, RollingUpdate: rolling(3).RollingUpdate}, UpdateStrategy, `{"type":"RollingUpdate"}`), Standing: Follows}, want: follows},
		"a label":                             {w: DaemonSetWrite{Old: follows, New: follows, Standing: Follows}, want: follows},
		"an edit of the specification":        {w: DaemonSetWrite{Old: follows, New: relabelled, Standing: Follows}, want: relabelled, warns: true},
		"the author's OnDelete, created":      {w: DaemonSetWrite{New: setOf(onDelete), Standing: Follows}, want: setOf(onDelete)},
		"OnDelete without the annotation":     {w: DaemonSetWrite{Old: follows, New: setOf(onDelete), Standing: Follows}, want: setOf(onDelete)},
		"OnDelete, by kubectl apply":          {w: DaemonSetWrite{Old: follows, New: setOf(onDelete, UpdateStrategy, kept, applied, says("OnDelete")), Standing: Follows}, want: setOf(onDelete, applied, says("OnDelete"))},
		"RollingUpdate by an edit after it":   {w: DaemonSetWrite{Old: setOf(onDelete, UpdateStrategy, kept, applied, says("OnDelete")), New: setOf(onDelete, UpdateStrategy, kept, applied, says("OnDelete")), Standing: Follows}, want: setOf(onDelete, UpdateStrategy, kept, applied, says("OnDelete"))},
		"OnDelete, by server-side apply":      {w: DaemonSetWrite{Old: follows, New: held, Standing: Follows, Manager: "flux"}, want: heldAlone},
		"OnDelete, applied as it is stored":   {w: DaemonSetWrite{Old: at(1, alone), New: at(1, alone), Standing: Follows, Manager: "flux"}, want: at(1, bare)},
		"OnDelete, applied with other things": {w: DaemonSetWrite{Old: at(1, alone), New: at(2, slower), Standing: Follows, Manager: "flux"}, want: at(2, func(ds *appsv1.DaemonSet) { slower(ds); bare(ds) })},
		"who applies tidies others up":        {w: DaemonSetWrite{Old: at(1, others), New: at(1, alone), Standing: Follows, Manager: "flux"}, want: at(1, alone)},
		"who applies writes otherwise":        {w: DaemonSetWrite{Old: at(1, alone), New: at(1, slower), Standing: Follows, Manager: "flux"}, want: at(1, slower), warns: true},
		"apply of limits alone":               {w: DaemonSetWrite{Old: follows, New: limits, Standing: Follows, Manager: "flux"}, want: limits},
		"a manager never applied one":         {w: DaemonSetWrite{Old: none, New: none, Standing: Follows, Manager: "flux"}, want: none},
		"apply of others than the strategy":   {w: DaemonSetWrite{Old: follows, New: held, Standing: Follows, Manager: "another"}, want: held},
		"the policy goes":                     {w: DaemonSetWrite{Old: follows, New: follows, Standing: Free}, want: setOf(rolling(3))},
		"the policy goes in the middle":       {w: DaemonSetWrite{Old: follows, New: follows, Standing: Frozen}, want: follows},
		"a new template while it is frozen":   {w: DaemonSetWrite{Old: follows, New: setOf(rolling(3)), Standing: Frozen}, want: follows},
		"frozen, and never followed any":      {w: DaemonSetWrite{Old: setOf(rolling(3)), New: setOf(rolling(3)), Standing: Frozen}, want: setOf(rolling(3))},
		"no policy":                           {w: DaemonSetWrite{New: setOf(rolling(3)), Standing: Free}, want: setOf(rolling(3))},
		"no policy, and an old annotation":    {w: DaemonSetWrite{New: setOf(rolling(2), UpdateStrategy, kept), Standing: Free}, want: setOf(rolling(2))},
		"no policy, and limits by a patch":    {w: DaemonSetWrite{New: setOf(appsv1.DaemonSetUpdateStrategy{Type: onDelete.Type, RollingUpdate: rolling(2).RollingUpdate}, UpdateStrategy, kept), Standing: Free}, want: setOf(rolling(2))},
		"no policy and the author's OnDelete": {w: DaemonSetWrite{New: setOf(onDelete), Standing: Free}, want: setOf(onDelete)},
	} {
		t.Run(name, func(t *testing.T) {
			got := stored(t, c.w)
			if !apiequality.Semantic.DeepEqual(got, c.want) {
				t.Errorf("stored is\n%s\nand not\n%s", encode(t, got), encode(t, c.want))
			}
			if warns := DaemonSet(c.w).Warning != ""; warns != c.warns {
				t.Errorf("it warns: %v, want %v", warns, c.warns)
			}
		})
	}
}

// TestAKeptStrategyThatCannotBeReadIsRefused: nobody could give the author's strategy back.
func TestAKeptStrategyThatCannotBeReadIsRefused(t *testing.T) {
	for _, kept := range []string{"", "{", `{"type":"OnDelete"}`, `{"type":"Later"}`} {
		for _, s := range []Standing{Follows, Free, Frozen} {
			ds := setOf(onDelete, UpdateStrategy, kept)
			if got := DaemonSet(DaemonSetWrite{Old: ds, New: ds, Standing: s}); got.Patch != nil || !strings.Contains(got.Refusal, UpdateStrategy) {
				t.Errorf("%q, standing %d: %+v", kept, s, got)
			}
		}
	}
}

// TestLimitsThatKubernetesRefuses are refused: it looks at the stored strategy alone, and would not have them back.
func TestLimitsThatKubernetesRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		unavailable, surge string
		good               bool
	}{
		"a number": {"3", "0", true}, "percent": {"20%", "0", true}, "a surge": {"0", "100%", true},
		"below 0": {"-1", "0", false}, "a word": {"few", "0", false}, "more than all": {"101%", "0", false},
		"a sign": {"+5%", "0", false}, "none": {"0", "0%", false}, "both": {"1", "1", false}, "a surge below 0": {"0", "-1", false},
	} {
		unavailable, surge := intstr.Parse(c.unavailable), intstr.Parse(c.surge)
		ds := setOf(appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &unavailable, MaxSurge: &surge}})
		got := DaemonSet(DaemonSetWrite{New: ds, Standing: Follows})
		if (got.Refusal == "") != c.good || c.good != (got.Patch != nil) {
			t.Errorf("%s is answered with %+v", name, got)
		}
		kept := setOf(onDelete, UpdateStrategy, string(encode(t, ds.Spec.UpdateStrategy)))
		if got = DaemonSet(DaemonSetWrite{Old: kept, New: kept, Standing: Follows}); (got.Refusal == "") != c.good {
			t.Errorf("%s, where it is kept, is answered with %+v", name, got)
		}
	}
	if err := possible(appsv1.DaemonSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateDaemonSet{}}); err != nil {
		t.Errorf("limits that are filled in are refused: %v", err)
	}
}

// TestWhatIsStoredStays has any DaemonSet written, again as it was stored, and again as its author wrote it; then its
// policy goes. No write after the first changes anything, and in the end it is what the author wrote.
func TestWhatIsStoredStays(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		author := setOf(rolling(rapid.IntRange(1, 3).Draw(r, "limit")))
		if rapid.Bool().Draw(r, "surges") {
			author.Spec.UpdateStrategy = rolling(0)
			author.Spec.UpdateStrategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromString("10%"))
		}
		if rapid.Bool().Draw(r, "has annotations") {
			author.Annotations = map[string]string{"a": "b"}
		}
		first := stored(t, DaemonSetWrite{New: author, Standing: Follows})
		if s := first.Spec.UpdateStrategy; !apiequality.Semantic.DeepEqual(s, onDelete) {
			r.Fatalf("stored is %v", s)
		}
		for _, again := range []*appsv1.DaemonSet{first, author} {
			if next := stored(t, DaemonSetWrite{Old: first, New: again, Standing: Follows}); !apiequality.Semantic.DeepEqual(next, first) {
				r.Fatalf("written again it becomes\n%s\nand not\n%s", encode(t, next), encode(t, first))
			}
		}
		back := stored(t, DaemonSetWrite{Old: first, New: first, Standing: Free})
		if !apiequality.Semantic.DeepEqual(back, author) {
			r.Fatalf("given back is\n%s\nand not\n%s", encode(t, back), encode(t, author))
		}
	})
}

func TestLeave(t *testing.T) {
	some := map[string]int{"new": 2, "old": 10, "older": 1, "gone": 0}
	for name, c := range map[string]struct {
		in   Leaving
		want Parting
		says string
	}{
		"complete":                  {Leaving{Pods: map[string]int{"new": 12, "old": 0}}, GivenBack, "no pod changes"},
		"no pods":                   {Leaving{}, GivenBack, "no pod changes"},
		"in the middle":             {Leaving{Pods: some}, Refused, "11 nodes have old, older and would get new at once"},
		"in the middle, kept":       {Leaving{Pods: some, Choice: KeepOnDelete}, StaysOnDelete, "11 nodes keep old, older"},
		"complete, kept":            {Leaving{Pods: map[string]int{"new": 1}, Choice: KeepOnDelete}, GivenBack, "no pod changes"},
		"rolled, without the right": {Leaving{Pods: some, Choice: LetItRoll}, Refused, "for those who may approve"},
		"rolled":                    {Leaving{Pods: some, Choice: LetItRoll, Approves: true}, GivenBack, "11 nodes get new at once"},
		"another content": {Leaving{Pods: map[string]int{"new.aaaaaaaaaaaaaaaaaaaaaaaa": 2, "new.bbbbbbbbbbbbbbbbbbbbbbbb": 1, "new": 4}},
			GivenBack, "no pod changes; the pods of 3 nodes read copies of its content"},
		"another template with content": {Leaving{Pods: map[string]int{"old.aaaaaaaaaaaaaaaaaaaaaaaa": 2, "old": 1, "new": 1}}, Refused,
			"3 nodes have old and would get new at once"},
		"lost":                     {Leaving{Lost: "junk", Pods: map[string]int{"new": 1}}, Refused, "junk; write its update strategy again"},
		"lost, and kept":           {Leaving{Lost: "junk", Pods: some, Choice: KeepOnDelete}, StaysOnDelete, "is lost"},
		"lost, to roll":            {Leaving{Lost: "junk", Pods: some, Choice: LetItRoll, Approves: true}, Refused, "junk"},
		"in the middle, of a boss": {Leaving{Pods: some, Approves: true}, Refused, "wait until the change has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.Name, c.in.Newest = "default/agent", "new"
			got, says := Leave(c.in)
			if got == Refused && strings.Contains(says, "copies") {
				t.Errorf("it says what becomes of copies, and nothing does: %s", says)
			}
			if got != c.want || !strings.Contains(says, c.says) || !strings.Contains(says, "default/agent") {
				t.Errorf("%d: %s, want %d: %s", got, says, c.want, c.says)
			}
		})
	}
}
