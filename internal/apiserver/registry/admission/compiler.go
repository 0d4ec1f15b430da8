package admission

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/everynode/everynode/internal/objects/compiled"
)

// digest names an expression and all that its meaning depends on.
type digest [sha256.Size]byte

func digestOf(before digest, parts ...string) (d digest) {
	h := sha256.New()
	h.Write(before[:])
	for _, part := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	h.Sum(d[:0])
	return d
}

// good are expressions that compile. Tools write their policies and webhooks again and again, as they were.
var good = compiled.New[digest, struct{}](10_000)

func goodOr(key digest, compile func() plugincel.CompilationResult) *apiservercel.Error {
	var wrong *apiservercel.Error
	_, err := good.Get(key, func() (struct{}, error) {
		if wrong := compile().Error; wrong != nil {
			return struct{}{}, wrong
		}
		return struct{}{}, nil
	})
	if err != nil {
		wrong, _ = err.(*apiservercel.Error)
	}
	return wrong
}

// keyOf names an expression. Its type says what it may give.
func keyOf(before digest, e plugincel.ExpressionAccessor, options plugincel.OptionalVariableDeclarations) digest {
	return digestOf(before, fmt.Sprintf("%T %+v", e, options), e.GetExpression())
}

// plain knows no variables.
type plain struct{}

func (plain) check(
	e plugincel.ExpressionAccessor, options plugincel.OptionalVariableDeclarations,
) *apiservercel.Error {
	return goodOr(keyOf(digest{}, e, options), func() plugincel.CompilationResult {
		return compiler().CompileCELExpression(e, options, environment.NewExpressions)
	})
}

// policyCompiler knows the variables of a policy. The library's compiler is costly to make and is so only when an
// expression is not known.
type policyCompiler struct {
	options   plugincel.OptionalVariableDeclarations
	variables []plugincel.NamedExpressionAccessor
	all       digest // the variables

	library *plugincel.CompositedCompiler
	has     int // how many variables the library's compiler has
}

func newPolicyCompiler(hasParams bool) *policyCompiler {
	p := &policyCompiler{options: plugincel.OptionalVariableDeclarations{HasParams: hasParams, HasAuthorizer: true}}
	p.all = digestOf(digest{}, "policy", fmt.Sprintf("%+v", p.options))
	return p
}

// declare adds a variable, and tells what is wrong with it. What comes after it may use it.
func (p *policyCompiler) declare(v plugincel.NamedExpressionAccessor) *apiservercel.Error {
	key := digestOf(p.all, v.GetName(), v.GetExpression())
	p.variables = append(p.variables, v)
	wrong := goodOr(key, func() (is plugincel.CompilationResult) { return p.last() })
	p.all = key
	return wrong
}

// last tells the library of all variables that it does not have yet, and says what became of the last one.
func (p *policyCompiler) last() (is plugincel.CompilationResult) {
	if p.library == nil {
		c, err := plugincel.NewCompositedCompiler(baseEnv())
		if err != nil {
			is.Error = &apiservercel.Error{Type: apiservercel.ErrorTypeInternal, Detail: err.Error(), Cause: err}
			return is
		}
		p.library = c
	}
	for ; p.has < len(p.variables); p.has++ {
		is = p.library.CompileAndStoreVariable(p.variables[p.has], p.options, environment.NewExpressions)
	}
	return is
}

func (p *policyCompiler) check(
	e plugincel.ExpressionAccessor, options plugincel.OptionalVariableDeclarations,
) *apiservercel.Error {
	return goodOr(keyOf(p.all, e, options), func() plugincel.CompilationResult {
		is := p.last()
		if p.library == nil {
			return is
		}
		return p.library.CompileCELExpression(e, options, environment.NewExpressions)
	})
}
