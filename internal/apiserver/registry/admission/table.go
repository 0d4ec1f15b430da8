package admission

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/everynode/everynode/internal/apiserver/table"
)

// nameAndAge returns what the first and the last column of every table show.
func nameAndAge(obj any, now time.Time) (name, age string) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return "", "<unknown>"
	}
	return m.GetName(), table.Since(m.GetCreationTimestamp(), now)
}

func webhookTable[T any](count func(*T) int) rest.TableConvertor {
	return table.Of(func(obj *T, now time.Time) []any {
		name, age := nameAndAge(obj, now)
		return []any{name, int64(count(obj)), age}
	}, table.Name, table.Column{Name: "Webhooks", Description: "Number of webhooks."}, table.Age)
}

func policyTable[T any](what string, get func(*T) (int, *admissionv1.ParamKind)) rest.TableConvertor {
	return table.Of(func(obj *T, now time.Time) []any {
		name, age := nameAndAge(obj, now)
		count, kind := get(obj)
		params := "<unset>"
		if kind != nil {
			params = kind.APIVersion + "/" + kind.Kind
		}
		return []any{name, int64(count), params, age}
	},
		table.Name,
		table.Column{Name: what, Type: "integer", Description: "Number of expressions."},
		table.Column{Name: "ParamKind", Description: "Kind of the objects that give the policy its parameters."},
		table.Age,
	)
}

func bindingTable[T any](get func(*T) (string, *admissionv1.ParamRef)) rest.TableConvertor {
	return table.Of(func(obj *T, now time.Time) []any {
		name, age := nameAndAge(obj, now)
		policy, ref := get(obj)
		params := "<unset>"
		switch {
		case ref == nil:
		case ref.Name == "":
			params = "*"
		case ref.Namespace == "":
			params = ref.Name
		default:
			params = ref.Namespace + "/" + ref.Name
		}
		return []any{name, policy, params, age}
	},
		table.Name,
		table.Column{Name: "PolicyName", Description: "Policy that is put into effect."},
		table.Column{Name: "ParamRef", Description: "Object that gives the policy its parameters."},
		table.Age,
	)
}
