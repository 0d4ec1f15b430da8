package admission

import (
	"fmt"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/everynode/everynode/internal/apiserver/enough"
)

const maxConditions = 64

// baseEnv is what all expressions can use. It is costly to make.
var baseEnv = sync.OnceValue(func() *environment.EnvSet {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
})

// compiler compiles what knows no variables. It is costly to make, too, and an object may have tens of thousands of
// webhooks with conditions.
var compiler = sync.OnceValue(func() plugincel.Compiler { return plugincel.NewCompiler(baseEnv()) })

// checker tells what is wrong with an expression; nil if nothing is.
type checker interface {
	check(plugincel.ExpressionAccessor, plugincel.OptionalVariableDeclarations) *apiservercel.Error
}

// validateConditions checks the conditions under which a webhook or policy is
// asked at all. They come before a policy's variables and do not know them.
func validateConditions(conditions []admissionv1.MatchCondition, hasParams bool, path *field.Path) field.ErrorList {
	if len(conditions) == 0 {
		return nil
	}
	if len(conditions) > maxConditions {
		return field.ErrorList{field.TooMany(path, len(conditions), maxConditions)}
	}
	c := plain{}
	var errs field.ErrorList
	names := sets.New[string]()
	for i := range enough.Each(conditions, &errs) {
		condition, at := &conditions[i], path.Index(i)
		errs = append(errs, compiles(c, (*matchconditions.MatchCondition)(condition), hasParams, at.Child("expression"))...)
		if condition.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		for _, m := range utilvalidation.IsQualifiedName(condition.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), condition.Name, m))
		}
		if names.Has(condition.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), condition.Name))
		}
		names.Insert(condition.Name)
	}
	return errs
}

// compileVariables returns a compiler that knows the variables, and what is
// wrong with them.
func compileVariables(variables []admissionv1.Variable, hasParams bool) (*policyCompiler, field.ErrorList) {
	path := specPath.Child("variables")
	c := newPolicyCompiler(hasParams)
	var errs field.ErrorList
	names := sets.New[string]()
	for i, v := range enough.Each(variables, &errs) {
		at := path.Index(i)
		if v.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		if names.Has(v.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		}
		names.Insert(v.Name)
		if strings.TrimSpace(v.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
			continue
		}
		errs = append(errs, compileError(c.declare(&validating.Variable{Name: v.Name, Expression: v.Expression}),
			v.Expression, at.Child("expression"))...)
	}
	return c, errs
}

func compiles(c checker, e plugincel.ExpressionAccessor, hasParams bool, path *field.Path) field.ErrorList {
	return compilesWith(c, e, plugincel.OptionalVariableDeclarations{HasParams: hasParams, HasAuthorizer: true}, path)
}

func compilesPatch(c checker, e plugincel.ExpressionAccessor, hasParams bool, path *field.Path) field.ErrorList {
	return compilesWith(
		c, e, plugincel.OptionalVariableDeclarations{HasParams: hasParams, HasAuthorizer: true, HasPatchTypes: true}, path,
	)
}

func compilesWith(
	c checker, e plugincel.ExpressionAccessor, options plugincel.OptionalVariableDeclarations, path *field.Path,
) field.ErrorList {
	if strings.TrimSpace(e.GetExpression()) == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return compileError(c.check(e, options), e.GetExpression(), path)
}

func compileError(err *apiservercel.Error, expression string, path *field.Path) field.ErrorList {
	if err == nil {
		return nil
	}
	switch err.Type {
	case apiservercel.ErrorTypeRequired:
		return field.ErrorList{field.Required(path, err.Detail)}
	case apiservercel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(path, expression, err.Detail)}
	}
	return field.ErrorList{field.InternalError(path, fmt.Errorf("compile the expression: %w", err))}
}
