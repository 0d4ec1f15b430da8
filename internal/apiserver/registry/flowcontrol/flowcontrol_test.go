package flowcontrol

import (
	"fmt"
	"slices"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/utils/ptr"
)

// What every cluster has is valid, and our defaults change nothing about it.
func TestUsualConfigurationIsValid(t *testing.T) {
	for _, l := range append(bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations...) {
		defaulted := l.DeepCopy()
		setLevelDefaults(defaulted)
		if errs := ValidateLevel(l); len(errs) > 0 || !apiequality.Semantic.DeepEqual(l, defaulted) {
			t.Errorf("%s: %v; with defaults %+v", l.Name, errs, defaulted.Spec)
		}
	}
	for _, f := range append(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas...) {
		defaulted := f.DeepCopy()
		setSchemaDefaults(defaulted)
		if errs := ValidateSchema(f); len(errs) > 0 || !apiequality.Semantic.DeepEqual(f, defaulted) {
			t.Errorf("%s: %v", f.Name, errs)
		}
	}
}

func level() *flowcontrolv1.PriorityLevelConfiguration {
	l := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
		Type: flowcontrolv1.PriorityLevelEnablementLimited,
		Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{LimitResponse: flowcontrolv1.LimitResponse{
			Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: &flowcontrolv1.QueuingConfiguration{},
		}},
	}}
	setLevelDefaults(l)
	return l
}

func texts(errs field.ErrorList) (out []string) {
	for _, e := range errs {
		out = append(out, e.Field+": "+e.Detail)
	}
	return out
}

func TestLevels(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*flowcontrolv1.PriorityLevelConfiguration)
		want []string
	}{
		"good": {func(*flowcontrolv1.PriorityLevelConfiguration) {}, nil},
		"exempt by another name": {func(l *flowcontrolv1.PriorityLevelConfiguration) {
			l.Spec = flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementExempt}
		}, []string{"spec.type: type must be 'Exempt' if and only if `name` is 'exempt'"}},
		"no type":   {func(l *flowcontrolv1.PriorityLevelConfiguration) { l.Spec.Type = "" }, []string{`spec.type: supported values: "Exempt", "Limited"`}},
		"no limits": {func(l *flowcontrolv1.PriorityLevelConfiguration) { l.Spec.Limited = nil }, []string{"spec.limited: must not be empty when type is Limited"}},
		"numbers": {func(l *flowcontrolv1.PriorityLevelConfiguration) {
			l.Spec.Limited.NominalConcurrencyShares, l.Spec.Limited.LendablePercent, l.Spec.Limited.BorrowingLimitPercent = ptr.To(int32(-1)), ptr.To(int32(101)), ptr.To(int32(-1))
		}, []string{"spec.limited.nominalConcurrencyShares: must be a non-negative integer", "spec.limited.lendablePercent: must be between 0 and 100, inclusive", "spec.limited.borrowingLimitPercent: if specified, must be a non-negative integer"}},
		"queues of one that rejects": {func(l *flowcontrolv1.PriorityLevelConfiguration) {
			l.Spec.Limited.LimitResponse.Type = flowcontrolv1.LimitResponseTypeReject
		}, []string{"spec.limited.limitResponse.queuing: must be nil if limited.limitResponse.type is not Limited"}},
		"a hand larger than the deck": {func(l *flowcontrolv1.PriorityLevelConfiguration) { l.Spec.Limited.LimitResponse.Queuing.Queues = 4 },
			[]string{"spec.limited.limitResponse.queuing.handSize: should not be greater than queues (4)"}},
		"more chance than there is": {func(l *flowcontrolv1.PriorityLevelConfiguration) {
			l.Spec.Limited.LimitResponse.Queuing.Queues, l.Spec.Limited.LimitResponse.Queuing.HandSize = 512, 8
		}, []string{"spec.limited.limitResponse.queuing.handSize: required entropy bits of deckSize 512 and handSize 8 should not be greater than 60"}},
		"the last resort, changed": {func(l *flowcontrolv1.PriorityLevelConfiguration) { l.Name = "catch-all" }, []string{"spec: spec of 'catch-all' must equal the fixed value"}},
	} {
		l := level()
		c.edit(l)
		if got := texts(ValidateLevel(l)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	exempt := bootstrap.MandatoryPriorityLevelConfigurationExempt.DeepCopy()
	exempt.Spec.Exempt.NominalConcurrencyShares = ptr.To(int32(5))
	if errs := ValidateLevel(exempt); len(errs) > 0 {
		t.Errorf("what the exempt level lends: %v", errs)
	}
}

func TestSchemas(t *testing.T) {
	good := func() *flowcontrolv1.FlowSchema {
		return &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence: 9, PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "l"},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects:         []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: "n", Name: "*"}}},
				ResourceRules:    []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, Namespaces: []string{"*"}}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"/healthz/*"}}},
			}},
		}}
	}
	for name, c := range map[string]struct {
		edit func(*flowcontrolv1.FlowSchemaSpec, *flowcontrolv1.PolicyRulesWithSubjects)
		want []string
	}{
		"good": {func(*flowcontrolv1.FlowSchemaSpec, *flowcontrolv1.PolicyRulesWithSubjects) {}, nil},
		"first": {func(s *flowcontrolv1.FlowSchemaSpec, _ *flowcontrolv1.PolicyRulesWithSubjects) {
			s.MatchingPrecedence = 1
		}, []string{"spec.matchingPrecedence: only the schema named 'exempt' may have matchingPrecedence 1"}},
		"last": {func(s *flowcontrolv1.FlowSchemaSpec, _ *flowcontrolv1.PolicyRulesWithSubjects) {
			s.MatchingPrecedence = 10001
		}, []string{"spec.matchingPrecedence: must not be greater than 10000"}},
		"no level": {func(s *flowcontrolv1.FlowSchemaSpec, _ *flowcontrolv1.PolicyRulesWithSubjects) {
			s.PriorityLevelConfiguration.Name = ""
		}, []string{"spec.priorityLevelConfiguration.name: must reference a priority level"}},
		"nobody": {func(_ *flowcontrolv1.FlowSchemaSpec, r *flowcontrolv1.PolicyRulesWithSubjects) { r.Subjects = nil }, []string{"spec.rules[0].subjects: subjects must contain at least one value"}},
		"nothing": {func(_ *flowcontrolv1.FlowSchemaSpec, r *flowcontrolv1.PolicyRulesWithSubjects) {
			r.ResourceRules, r.NonResourceRules = nil, nil
		}, []string{"spec.rules[0]: at least one of resourceRules and nonResourceRules has to be non-empty"}},
		"two of kind": {func(_ *flowcontrolv1.FlowSchemaSpec, r *flowcontrolv1.PolicyRulesWithSubjects) {
			r.Subjects[0].User = &flowcontrolv1.UserSubject{Name: "u"}
		}, []string{"spec.rules[0].subjects[0].user: user is forbidden when subject kind is not 'User'"}},
		"no account": {func(_ *flowcontrolv1.FlowSchemaSpec, r *flowcontrolv1.PolicyRulesWithSubjects) {
			r.Subjects[0].ServiceAccount = nil
		}, []string{"spec.rules[0].subjects[0].serviceAccount: serviceAccount is required when subject kind is 'ServiceAccount'"}},
		"all and one": {func(_ *flowcontrolv1.FlowSchemaSpec, r *flowcontrolv1.PolicyRulesWithSubjects) {
			r.ResourceRules[0].Verbs = []string{"*", "get"}
		}, []string{"spec.rules[0].resourceRules[0].verbs: if '*' is present, must not specify other verbs"}},
		"where": {func(_ *flowcontrolv1.FlowSchemaSpec, r *flowcontrolv1.PolicyRulesWithSubjects) {
			r.ResourceRules[0].Namespaces = nil
		}, []string{"spec.rules[0].resourceRules[0].namespaces: resource rules that are not cluster scoped must supply at least one namespace"}},
		"paths": {func(_ *flowcontrolv1.FlowSchemaSpec, r *flowcontrolv1.PolicyRulesWithSubjects) {
			r.NonResourceRules[0].NonResourceURLs = []string{"/", "/a/*", "a", "/a*", "/a//b", "/a b", ""}
		}, []string{
			"spec.rules[0].nonResourceRules[0].nonResourceURLs[2]: must start with slash",
			"spec.rules[0].nonResourceRules[0].nonResourceURLs[3]: wildcard can only do suffix matching",
			"spec.rules[0].nonResourceRules[0].nonResourceURLs[4]: must not contain double slash",
			"spec.rules[0].nonResourceRules[0].nonResourceURLs[5]: must not contain white-space",
			"spec.rules[0].nonResourceRules[0].nonResourceURLs[6]: must not be empty",
		}},
	} {
		f := good()
		c.edit(&f.Spec, &f.Spec.Rules[0])
		if got := texts(ValidateSchema(f)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestRows(t *testing.T) {
	f := bootstrap.SuggestedFlowSchemaSystemNodes.DeepCopy()
	f.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{{Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionFalse}}
	if got := fmt.Sprint(schemaRow(f, time.Time{})); got != "[system-nodes system 500 ByUser <unknown> False]" {
		t.Errorf("a schema: %s", got)
	}
	if got := fmt.Sprint(schemaRow(bootstrap.MandatoryFlowSchemaExempt, time.Time{})); got != "[exempt exempt 1 <none> <unknown> ?]" {
		t.Errorf("another: %s", got)
	}
	for l, want := range map[*flowcontrolv1.PriorityLevelConfiguration]string{
		bootstrap.SuggestedPriorityLevelConfigurationNodeHigh: "[node-high Limited 40 64 6 50 <unknown>]",
		bootstrap.MandatoryPriorityLevelConfigurationExempt:   "[exempt Exempt 0 <none> <none> <none> <unknown>]",
		bootstrap.MandatoryPriorityLevelConfigurationCatchAll: "[catch-all Limited 5 <none> <none> <none> <unknown>]",
	} {
		if got := fmt.Sprint(levelRow(l, time.Time{})); got != want {
			t.Errorf("a level: %s, want %s", got, want)
		}
	}
}
