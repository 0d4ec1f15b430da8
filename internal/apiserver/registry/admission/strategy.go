// Package admission describes the kinds of admissionregistration.k8s.io/v1:
// webhooks and policies that have a say in what is stored.
package admission

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/resource"
)

// Definitions returns the six kinds.
func Definitions() []resource.Definition {
	return []resource.Definition{
		validatingWebhooks(), mutatingWebhooks(),
		validatingPolicy(), validatingBinding(), mutatingPolicy(), mutatingBinding(),
	}
}

func kind(name, plural, singular string) resource.Kind {
	return resource.Kind{
		GroupVersion:  admissionv1.SchemeGroupVersion,
		Kind:          name,
		Plural:        plural,
		Singular:      singular,
		ClusterScoped: true,
	}
}

func validatingWebhooks() resource.Definition {
	type T = admissionv1.ValidatingWebhookConfiguration
	return resource.Of[T, admissionv1.ValidatingWebhookConfigurationList](
		kind("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "validatingwebhookconfiguration"),
		webhookRules(
			func(c *T) (*metav1.ObjectMeta, []admissionv1.ValidatingWebhook) { return &c.ObjectMeta, c.Webhooks }, ofValidating,
			nil,
		))
}

func mutatingWebhooks() resource.Definition {
	type T = admissionv1.MutatingWebhookConfiguration
	return resource.Of[T, admissionv1.MutatingWebhookConfigurationList](
		kind("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "mutatingwebhookconfiguration"),
		webhookRules(
			func(c *T) (*metav1.ObjectMeta, []admissionv1.MutatingWebhook) { return &c.ObjectMeta, c.Webhooks }, ofMutating,
			func(w *admissionv1.MutatingWebhook) { fill(&w.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy) },
		))
}

// webhookRules are the rules of both kinds of webhook configuration. common is what
// a webhook W has like every other; defaults, if given, sets what only W has.
func webhookRules[T, W any](open func(*T) (*metav1.ObjectMeta, []W), common func(*W) webhook,
	defaults func(*W)) resource.Rules[T] {
	return resource.Rules[T]{
		Default: func(c *T) {
			_, webhooks := open(c)
			for i := range webhooks {
				setWebhookDefaults(common(&webhooks[i]))
				if defaults != nil {
					defaults(&webhooks[i])
				}
			}
		},
		PrepareForCreate: func(_ context.Context, c *T) {
			meta, _ := open(c)
			meta.Generation = 1
		},
		PrepareForUpdate: func(_ context.Context, c, old *T) {
			meta, webhooks := open(c)
			oldMeta, oldWebhooks := open(old)
			meta.Generation = oldMeta.Generation
			if !alike.Values(webhooks, oldWebhooks) {
				meta.Generation++
			}
		},
		Validate: func(_ context.Context, c *T) field.ErrorList {
			_, webhooks := open(c)
			list := make([]webhook, len(webhooks))
			for i := range webhooks {
				list[i] = common(&webhooks[i])
			}
			return validateWebhooks(list)
		},
		Table: webhookTable(func(c *T) int {
			_, webhooks := open(c)
			return len(webhooks)
		}),
	}
}

func validatingPolicy() resource.Definition {
	type T = admissionv1.ValidatingAdmissionPolicy
	return resource.Of[T, admissionv1.ValidatingAdmissionPolicyList](
		kind("ValidatingAdmissionPolicy", "validatingadmissionpolicies", "validatingadmissionpolicy"), resource.Rules[T]{
			Default: func(p *T) {
				fill(&p.Spec.FailurePolicy, admissionv1.Fail)
				setMatchDefaults(p.Spec.MatchConstraints)
			},
			Spec:     func(p *T) any { return &p.Spec },
			Status:   func(p *T) any { return &p.Status },
			Validate: func(_ context.Context, p *T) field.ErrorList { return validateValidatingPolicy(&p.Spec) },
			Table: policyTable("Validations", func(p *T) (int, *admissionv1.ParamKind) {
				return len(p.Spec.Validations), p.Spec.ParamKind
			}),
		})
}

func mutatingPolicy() resource.Definition {
	type T = admissionv1.MutatingAdmissionPolicy
	return resource.Of[T, admissionv1.MutatingAdmissionPolicyList](
		kind("MutatingAdmissionPolicy", "mutatingadmissionpolicies", "mutatingadmissionpolicy"), resource.Rules[T]{
			Default: func(p *T) {
				fill(&p.Spec.FailurePolicy, admissionv1.Fail)
				if p.Spec.ReinvocationPolicy == "" {
					p.Spec.ReinvocationPolicy = admissionv1.NeverReinvocationPolicy
				}
				setMatchDefaults(p.Spec.MatchConstraints)
			},
			Spec:     func(p *T) any { return &p.Spec },
			Validate: func(_ context.Context, p *T) field.ErrorList { return validateMutatingPolicy(&p.Spec) },
			Table: policyTable("Mutations", func(p *T) (int, *admissionv1.ParamKind) {
				return len(p.Spec.Mutations), p.Spec.ParamKind
			}),
		})
}

func validatingBinding() resource.Definition {
	type T = admissionv1.ValidatingAdmissionPolicyBinding
	return resource.Of[T, admissionv1.ValidatingAdmissionPolicyBindingList](
		kind("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", "validatingadmissionpolicybinding"),
		resource.Rules[T]{
			Default: func(b *T) { setMatchDefaults(b.Spec.MatchResources) },
			Spec:    func(b *T) any { return &b.Spec },
			Validate: func(_ context.Context, b *T) field.ErrorList {
				errs := validateBinding(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources)
				return append(errs, validateActions(b.Spec.ValidationActions, field.NewPath("spec", "validationActions"))...)
			},
			Table: bindingTable(func(b *T) (string, *admissionv1.ParamRef) { return b.Spec.PolicyName, b.Spec.ParamRef }),
		})
}

func mutatingBinding() resource.Definition {
	type T = admissionv1.MutatingAdmissionPolicyBinding
	return resource.Of[T, admissionv1.MutatingAdmissionPolicyBindingList](
		kind("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", "mutatingadmissionpolicybinding"),
		resource.Rules[T]{
			Default: func(b *T) { setMatchDefaults(b.Spec.MatchResources) },
			Spec:    func(b *T) any { return &b.Spec },
			Validate: func(_ context.Context, b *T) field.ErrorList {
				return validateBinding(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources)
			},
			Table: bindingTable(func(b *T) (string, *admissionv1.ParamRef) { return b.Spec.PolicyName, b.Spec.ParamRef }),
		})
}
