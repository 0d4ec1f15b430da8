package rolloutpolicy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/api/v1alpha1"
)

// The most that a policy may have of each.
const (
	MaxWaves   = 20
	MaxDomains = 8
	MaxWindows = 50
	// MaxTerms and MaxValues are of each selector.
	MaxTerms  = 20
	MaxValues = 100
	// MaxFactor is how fast a ramp may grow.
	MaxFactor = 1000
	// MaxSteps is how many steps the waves may make of a fleet: all are in the rollout's status.
	MaxSteps = 1000
)

// RestName is the name of the step of the nodes that no wave takes.
const RestName = "rest"

// Validate checks a policy's spec as far as a CustomResourceDefinition could.
func Validate(spec *v1alpha1.RolloutPolicySpec, at *field.Path) field.ErrorList {
	errs := selector(spec.Selector, at.Child("selector"))
	errs = append(errs, validateWaves(spec.Waves, at.Child("waves"))...)
	errs = append(errs, validateDomains(spec.Domains, at.Child("domains"))...)
	errs = append(errs, validateFailure(&spec.Failure, at.Child("failure"))...)
	errs = append(errs, numberOrPercent(spec.NodeFaults.Max, 0, at.Child("nodeFaults", "max"))...)
	if len(spec.Windows) > MaxWindows {
		errs = append(errs, field.TooMany(at.Child("windows"), len(spec.Windows), MaxWindows))
	} else {
		for i := range spec.Windows {
			errs = append(errs, validateWindow(&spec.Windows[i], at.Child("windows").Index(i))...)
		}
	}
	errs = append(errs, validateContent(spec.Content, at.Child("content"))...)
	switch spec.Images {
	case "", v1alpha1.ImagesAsWritten, v1alpha1.ImagesPinned:
	default:
		known := []v1alpha1.ImageResolution{v1alpha1.ImagesAsWritten, v1alpha1.ImagesPinned}
		errs = append(errs, field.NotSupported(at.Child("images"), spec.Images, known))
	}
	return append(errs, positive(spec.Pace.NodesPerMinute, at.Child("pace", "nodesPerMinute"))...)
}

func validateWaves(waves []v1alpha1.Wave, at *field.Path) (errs field.ErrorList) {
	if len(waves) > MaxWaves {
		return field.ErrorList{field.TooMany(at, len(waves), MaxWaves)} // Each is compared with those before.
	}
	names := sets.New[string]()
	for i := range waves {
		w, at := &waves[i], at.Index(i)
		if w.Name != "" {
			for _, problem := range validation.IsDNS1123Label(w.Name) {
				errs = append(errs, field.Invalid(at.Child("name"), w.Name, problem))
			}
		}
		switch {
		case w.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case names.Has(w.Name):
			errs = append(errs, field.Duplicate(at.Child("name"), w.Name))
		case w.Name == RestName:
			errs = append(errs, field.Invalid(
				at.Child("name"), w.Name, "is the name of the last wave, which takes all other nodes",
			))
		}
		names.Insert(w.Name)
		errs = append(errs, validateWave(w, at)...)
		if reason := neverReached(waves[:i], w); reason != "" {
			errs = append(errs, field.Invalid(at, w.Name, reason))
		}
	}
	return errs
}

// neverReached says why no node can ever belong to a wave that comes after others. What
// depends on the nodes there are, nobody can know here.
func neverReached(before []v1alpha1.Wave, w *v1alpha1.Wave) string {
	for i := range before {
		b := &before[i]
		if b.Each != "" || b.Percent != nil && *b.Percent == 100 ||
			b.Nodes != nil && len(b.Nodes.MatchLabels)+len(b.Nodes.MatchExpressions) == 0 {
			return fmt.Sprintf("gets no node: the wave %s before it takes all", b.Name)
		}
		if b.Nodes != nil && apiequality.Semantic.DeepEqual(b.Nodes, w.Nodes) {
			return fmt.Sprintf("gets no node: the wave %s before it takes the same", b.Name)
		}
	}
	return ""
}

func validateWave(w *v1alpha1.Wave, at *field.Path) (errs field.ErrorList) {
	given := 0
	for _, is := range []bool{w.Nodes != nil, w.Count != nil, w.Percent != nil, w.Each != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		errs = append(errs, field.Invalid(at, w.Name, "must have exactly one of nodes, count, percent and each"))
	}
	errs = append(errs, selector(w.Nodes, at.Child("nodes"))...)
	errs = append(errs, positive(w.Count, at.Child("count"))...)
	errs = append(errs, positive(w.Percent, at.Child("percent"))...)
	if w.Percent != nil && *w.Percent > 100 {
		errs = append(errs, field.Invalid(at.Child("percent"), *w.Percent, "must be at most 100"))
	}
	errs = append(errs, labelKey(w.Each, at.Child("each"))...)
	errs = append(errs, labelKey(w.SpreadBy, at.Child("spreadBy"))...)
	if w.SpreadBy != "" && w.Count == nil && w.Percent == nil {
		errs = append(errs, field.Forbidden(at.Child("spreadBy"), "is for waves with count or percent"))
	}
	errs = append(errs, validateRamp(w, at.Child("ramp"))...)
	errs = append(errs, numberOrPercent(w.MaxUnavailable, 1, at.Child("maxUnavailable"))...)
	errs = append(errs, atLeast(w.Soak, 0, at.Child("soak"))...)
	errs = append(errs, atLeast(w.FetchDeadline, 1, at.Child("fetchDeadline"))...)
	if w.FetchDeadline != "" && !w.Fetch {
		errs = append(errs, field.Forbidden(at.Child("fetchDeadline"), "is for waves with fetch"))
	}
	switch w.Approval {
	case "", v1alpha1.ApprovalAutomatic, v1alpha1.ApprovalManual:
	default:
		errs = append(errs, field.NotSupported(at.Child("approval"), w.Approval, []v1alpha1.Approval{
			v1alpha1.ApprovalAutomatic, v1alpha1.ApprovalManual,
		}))
	}
	return errs
}

func validateRamp(w *v1alpha1.Wave, at *field.Path) (errs field.ErrorList) {
	r := w.Ramp
	if r == nil {
		return nil
	}
	if w.Nodes == nil {
		errs = append(errs, field.Forbidden(at, "is for waves with nodes; an empty nodes takes all"))
	}
	errs = append(errs, positive(r.From, at.Child("from"))...)
	if r.Factor != nil && (*r.Factor < 2 || *r.Factor > MaxFactor) {
		errs = append(errs, field.Invalid(at.Child("factor"), *r.Factor, fmt.Sprintf("must be between 2 and %d", MaxFactor)))
	}
	return errs
}

func validateDomains(domains []v1alpha1.Domain, at *field.Path) (errs field.ErrorList) {
	if len(domains) > MaxDomains {
		return field.ErrorList{field.TooMany(at, len(domains), MaxDomains)}
	}
	keys := sets.New[string]()
	for i := range domains {
		d, at := &domains[i], at.Index(i)
		if d.Key == "" {
			errs = append(errs, field.Required(at.Child("key"), ""))
		}
		errs = append(errs, labelKey(d.Key, at.Child("key"))...)
		if keys.Has(d.Key) {
			errs = append(errs, field.Duplicate(at.Child("key"), d.Key))
		}
		keys.Insert(d.Key)
		errs = append(errs, numberOrPercent(&d.MaxUnavailable, 1, at.Child("maxUnavailable"))...)
	}
	return errs
}

func validateFailure(f *v1alpha1.Failure, at *field.Path) field.ErrorList {
	errs := numberOrPercent(f.Max, 0, at.Child("max"))
	errs = append(errs, positive(f.Min, at.Child("min"))...)
	errs = append(errs, positive(f.Restarts, at.Child("restarts"))...)
	errs = append(errs, atLeast(f.StartDeadline, 1, at.Child("startDeadline"))...)
	switch f.Then {
	case "", v1alpha1.FailureHalt, v1alpha1.FailureRollback:
	default:
		errs = append(errs, field.NotSupported(at.Child("then"), f.Then, []v1alpha1.FailureAction{
			v1alpha1.FailureHalt, v1alpha1.FailureRollback,
		}))
	}
	return errs
}

// ValidateRollout checks what people write into a rollout.
func ValidateRollout(spec *v1alpha1.DaemonSetRolloutSpec, at *field.Path) (errs field.ErrorList) {
	required := func(value string, at *field.Path) {
		if value == "" {
			errs = append(errs, field.Required(at, ""))
		}
	}
	of := func(revision, digest string, at *field.Path) {
		required(revision, at.Child("revision"))
		if !digestForm.MatchString(digest) {
			errs = append(errs, field.Invalid(at.Child("digest"), digest, DigestMessage))
		}
	}
	if a := spec.Approved; a != nil {
		of(a.Revision, a.Digest, at.Child("approved"))
		required(a.Step, at.Child("approved", "step"))
		if a.Change < 0 || a.Change > MaxChange {
			errs = append(errs, field.Invalid(at.Child("approved", "change"), a.Change, ChangeMessage))
		}
	}
	if r := spec.Retry; r != nil {
		of(r.Revision, r.Digest, at.Child("retry"))
		errs = append(errs, positive(&r.Count, at.Child("retry", "count"))...)
	}
	if a := spec.Abort; a != nil {
		of(a.Revision, a.Digest, at.Child("abort"))
	}
	return errs
}

const (
	// MaxChange is more than any rollout gets to, and a number that JSON holds everywhere.
	MaxChange = 1 << 53
	// ChangeMessage says what to write.
	ChangeMessage = "must be status.change of the rollout"
	// DigestPattern is what the digest of a template looks like.
	DigestPattern = `^sha256:[0-9a-f]{64}$`
	// DigestMessage says what to write.
	DigestMessage = "must be status.targetDigest of the rollout; everynode rollout approve, retry and abort write it"
)

var digestForm = regexp.MustCompile(DigestPattern)

// weekDays are the names that a window may use, by time.Weekday.
var weekDays = []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

// maxDays is more than a week has, so that one that is named twice is told.
const maxDays = 14

func validateWindow(w *v1alpha1.Window, at *field.Path) (errs field.ErrorList) {
	days := sets.New[string]()
	if len(w.Days) > maxDays {
		return field.ErrorList{field.TooMany(at.Child("days"), len(w.Days), maxDays)}
	}
	for i, d := range w.Days {
		if !slices.Contains(weekDays, d) {
			errs = append(errs, field.NotSupported(at.Child("days").Index(i), d, weekDays))
		}
		if days.Has(d) {
			errs = append(errs, field.Duplicate(at.Child("days").Index(i), d))
		}
		days.Insert(d)
	}
	if _, err := timeOfDay(w.From); err != nil || w.From == "24:00" {
		errs = append(errs, field.Invalid(at.Child("from"), w.From, "must be a time of day from 00:00 to 23:59"))
	}
	if _, err := timeOfDay(w.To); err != nil {
		errs = append(errs, field.Invalid(at.Child("to"), w.To, "must be a time of day from 00:00 to 24:00"))
	}
	return errs
}

var clockTime = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$|^24:00$`)

// timeOfDay returns the minutes since midnight that HH:MM names.
func timeOfDay(s string) (int, error) {
	if !clockTime.MatchString(s) {
		return 0, fmt.Errorf("%q is no time of day such as 09:00", s)
	}
	digit := func(i int) int { return int(s[i] - '0') }
	return (digit(0)*10+digit(1))*60 + digit(3)*10 + digit(4), nil
}

func selector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	if n := len(s.MatchLabels); n > MaxTerms {
		errs = append(errs, field.TooMany(at.Child("matchLabels"), n, MaxTerms))
	}
	if n := len(s.MatchExpressions); n > MaxTerms {
		errs = append(errs, field.TooMany(at.Child("matchExpressions"), n, MaxTerms))
	}
	if len(errs) > 0 {
		return errs
	}
	errs = metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at)
	for i := range s.MatchExpressions {
		if n := len(s.MatchExpressions[i].Values); n > MaxValues {
			errs = append(errs, field.TooMany(at.Child("matchExpressions").Index(i).Child("values"), n, MaxValues))
		}
	}
	return errs
}

func labelKey(key string, at *field.Path) field.ErrorList {
	if key == "" {
		return nil
	}
	return metav1validation.ValidateLabelName(key, at)
}

func positive(n *int32, at *field.Path) field.ErrorList {
	if n != nil && *n < 1 {
		return field.ErrorList{field.Invalid(at, *n, "must be at least 1")}
	}
	return nil
}

// atLeast wants a length of time that is not shorter than least, if there is one.
func atLeast(d v1alpha1.Duration, least time.Duration, at *field.Path) field.ErrorList {
	if d == "" {
		return nil
	}
	switch length, err := time.ParseDuration(string(d)); {
	case err != nil:
		return field.ErrorList{field.Invalid(at, d, "must be a length of time, such as 90s or 1h30m")}
	case length < 0:
		return field.ErrorList{field.Invalid(at, d, "must not be negative")}
	case length < least:
		return field.ErrorList{field.Invalid(at, d, "must be greater than 0")}
	}
	return nil
}

// numberOrPercent takes a number of at least least, or a percentage from that to 100%.
func numberOrPercent(v *intstr.IntOrString, least int, at *field.Path) field.ErrorList {
	if v == nil {
		return nil
	}
	if v.Type == intstr.Int {
		if v.IntValue() < least {
			return field.ErrorList{field.Invalid(at, v.IntValue(), fmt.Sprintf("must be at least %d", least))}
		}
		return nil
	}
	percent, ok := strings.CutSuffix(v.StrVal, "%")
	n, err := intstr.GetScaledValueFromIntOrPercent(v, 100, true)
	if !ok || err != nil || strings.Trim(percent, "0123456789") != "" || n < least || n > 100 {
		return field.ErrorList{field.Invalid(
			at, v.StrVal, fmt.Sprintf("must be a number of nodes or a percentage from %d%% to 100%%", least),
		)}
	}
	return nil
}
