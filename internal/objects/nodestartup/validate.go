package nodestartup

import (
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/api/v1alpha1"
)

// The most that a NodeStartup may have of each.
const (
	// MaxName is how long its name may be: the value of a taint has 63 characters at most.
	MaxName       = 60
	MaxGroups     = 20
	MaxDaemonSets = 20 // of a group
	MaxTerms      = 20 // of the selector
	MaxValues     = 100
)

// SetDefaults fills in what was left out.
func SetDefaults(spec *v1alpha1.NodeStartupSpec) {
	if spec.Gate == "" {
		spec.Gate = v1alpha1.GateJoin
	}
	for i := range spec.Groups {
		if spec.Groups[i].Then == "" {
			spec.Groups[i].Then = v1alpha1.ThenWait
		}
	}
}

// Validate checks a NodeStartup.
func Validate(s *v1alpha1.NodeStartup) field.ErrorList {
	var errs field.ErrorList
	if n := len(s.Name); n > MaxName {
		errs = append(errs, field.TooLong(field.NewPath("metadata", "name"), s.Name, MaxName))
	}
	at := field.NewPath("spec")
	errs = append(errs, validateSelector(s, at.Child("nodes"))...)
	switch s.Spec.Gate {
	case v1alpha1.GateJoin, v1alpha1.GateNone:
	default:
		known := []v1alpha1.StartupGate{v1alpha1.GateJoin, v1alpha1.GateNone}
		errs = append(errs, field.NotSupported(at.Child("gate"), s.Spec.Gate, known))
	}
	at = at.Child("groups")
	switch n := len(s.Spec.Groups); {
	case n == 0:
		return append(errs, field.Required(at, "a node would have nothing to wait for"))
	case n > MaxGroups:
		return append(errs, field.TooMany(at, n, MaxGroups))
	}
	seen := sets.New[types.NamespacedName]()
	for i := range s.Spec.Groups {
		errs = append(errs, validateGroup(&s.Spec.Groups[i], seen, at.Index(i))...)
	}
	return errs
}

func validateSelector(s *v1alpha1.NodeStartup, at *field.Path) field.ErrorList {
	selector := s.Spec.Nodes
	if selector == nil {
		return nil
	}
	if n := len(selector.MatchLabels); n > MaxTerms {
		return field.ErrorList{field.TooMany(at.Child("matchLabels"), n, MaxTerms)}
	}
	if n := len(selector.MatchExpressions); n > MaxTerms {
		return field.ErrorList{field.TooMany(at.Child("matchExpressions"), n, MaxTerms)}
	}
	errs := metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, at)
	for i := range selector.MatchExpressions {
		if n := len(selector.MatchExpressions[i].Values); n > MaxValues {
			errs = append(errs, field.TooMany(at.Child("matchExpressions").Index(i).Child("values"), n, MaxValues))
		}
	}
	return errs
}

// validateGroup checks a group; seen are the DaemonSets listed so far.
func validateGroup(g *v1alpha1.StartupGroup, seen sets.Set[types.NamespacedName],
	at *field.Path) (errs field.ErrorList) {
	switch n := len(g.DaemonSets); {
	case n == 0:
		errs = append(errs, field.Required(at.Child("daemonSets"), "the group would start nothing"))
	case n > MaxDaemonSets:
		return field.ErrorList{field.TooMany(at.Child("daemonSets"), n, MaxDaemonSets)}
	}
	for i, d := range g.DaemonSets {
		at := at.Child("daemonSets").Index(i)
		named := validateNames(d, at)
		errs = append(errs, named...)
		if len(named) == 0 && seen.Has(NameOf(d)) {
			errs = append(errs, field.Duplicate(at, d.Namespace+"/"+d.Name))
		}
		seen.Insert(NameOf(d))
	}
	errs = append(errs, validateTimeout(g, at)...)
	return errs
}

func validateNames(d v1alpha1.StartupDaemonSet, at *field.Path) (errs field.ErrorList) {
	for _, part := range []struct {
		name, value string
		check       apivalidation.ValidateNameFunc
	}{
		{"namespace", d.Namespace, apivalidation.ValidateNamespaceName},
		{"name", d.Name, apivalidation.NameIsDNSSubdomain},
	} {
		if part.value == "" {
			errs = append(errs, field.Required(at.Child(part.name), ""))
			continue
		}
		for _, problem := range part.check(part.value, false) {
			errs = append(errs, field.Invalid(at.Child(part.name), part.value, problem))
		}
	}
	return errs
}

func validateTimeout(g *v1alpha1.StartupGroup, at *field.Path) (errs field.ErrorList) {
	switch g.Then {
	case v1alpha1.ThenWait, v1alpha1.ThenOpen:
	default:
		known := []v1alpha1.StartupThen{v1alpha1.ThenWait, v1alpha1.ThenOpen}
		errs = append(errs, field.NotSupported(at.Child("then"), g.Then, known))
	}
	if g.Timeout == "" {
		if g.Then == v1alpha1.ThenOpen {
			errs = append(errs, field.Required(at.Child("timeout"), "then: Open takes a time after which that is"))
		}
		return errs
	}
	switch length, err := time.ParseDuration(string(g.Timeout)); {
	case err != nil:
		errs = append(errs, field.Invalid(at.Child("timeout"), g.Timeout,
			"must be a length of time, such as 90s or 1h30m"))
	case length < time.Second:
		errs = append(errs, field.Invalid(at.Child("timeout"), g.Timeout, "must be at least 1s"))
	}
	return errs
}

// TimeoutOf is how long a group may take on a node; 0 for as long as it takes.
func TimeoutOf(g *v1alpha1.StartupGroup) time.Duration {
	length, err := time.ParseDuration(string(g.Timeout))
	if err != nil {
		return 0 // empty; no other is stored
	}
	return length
}
