// Package formula reads and computes the formulas of DaemonSetVariants: CEL expressions over a node that give a number.
// They know no way to repeat anything, and cost no more than an expression of an admission policy may.
package formula

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/everynode/everynode/internal/objects/compiled"
)

// Max is how many characters a formula may have.
const Max = 1024

// Formula is a CEL expression that was read. It can be used by several at once.
type Formula struct{ program cel.Program }

// environment is what formulas know: the node, numbers, and no way to repeat anything.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	two := func(name string, choose func(a, b float64) float64, whole func(a, b int64) int64) cel.EnvOption {
		floats := cel.BinaryBinding(func(a, b ref.Val) ref.Val { return types.Double(choose(number(a), number(b))) })
		ints := cel.BinaryBinding(func(a, b ref.Val) ref.Val {
			return types.Int(whole(int64(a.(types.Int)), int64(b.(types.Int))))
		})
		d, i := cel.DoubleType, cel.IntType
		return cel.Function(name,
			cel.Overload(name+"_double_double", []*cel.Type{d, d}, d, floats),
			cel.Overload(name+"_double_int", []*cel.Type{d, i}, d, floats),
			cel.Overload(name+"_int_double", []*cel.Type{i, d}, d, floats),
			cel.Overload(name+"_int_int", []*cel.Type{i, i}, i, ints))
	}
	env, err := cel.NewEnv(
		cel.ClearMacros(), cel.Macros(cel.HasMacro), cel.ParserExpressionSizeLimit(Max),
		cel.Variable("node.name", cel.StringType),
		cel.Variable("node.labels", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("node.allocatable", cel.MapType(cel.StringType, cel.DoubleType)),
		cel.Variable("node.capacity", cel.MapType(cel.StringType, cel.DoubleType)),
		two("max", math.Max, func(a, b int64) int64 { return max(a, b) }),
		two("min", math.Min, func(a, b int64) int64 { return min(a, b) }),
		cel.Function("quantity", cel.Overload("quantity_string", []*cel.Type{cel.StringType}, cel.DoubleType,
			cel.UnaryBinding(quantity))),
	)
	if err != nil {
		return nil, fmt.Errorf("set up the environment of formulas: %w", err)
	}
	return env, nil
})

func number(v ref.Val) float64 {
	if i, is := v.(types.Int); is {
		return float64(i)
	}
	return float64(v.(types.Double))
}

// quantity reads a quantity such as 128Mi or 100m.
func quantity(v ref.Val) ref.Val {
	text := string(v.(types.String))
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return types.NewErr("%q is no quantity: %v", text, err)
	}
	return types.Double(q.AsApproximateFloat64())
}

// kept is how many formulas are kept. One takes up to some tens of kilobytes.
const kept = 500

// known are the formulas that were read last. Each DaemonSet that a variant chooses reads them, at each change of any
// variant, and stored ones are read again.
var known = compiled.New[string, *Formula](kept)

// Compile reads a formula. One that it knows is not read again.
func Compile(text string) (*Formula, error) {
	if len(text) > Max {
		return nil, fmt.Errorf("has more than %d characters", Max)
	}
	return known.Get(text, func() (*Formula, error) { return read(text) })
}

func read(text string) (*Formula, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("is empty")
	}
	env, err := environment()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	if t := ast.OutputType(); !t.IsExactType(cel.DoubleType) && !t.IsExactType(cel.IntType) {
		return nil, fmt.Errorf("gives a %s, but must give a number", t)
	}
	program, err := env.Program(ast, cel.CostLimit(celconfig.PerCallLimit),
		cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		return nil, err
	}
	return &Formula{program}, nil
}

// Node is what formulas know of a node: what it can give to pods, and what it has, in cores and bytes.
type Node struct {
	Name                  string
	Labels                map[string]string
	Allocatable, Capacity map[string]float64
}

// On is what the formula gives on a node: cores, or bytes.
func (f *Formula) On(n *Node) (float64, error) {
	out, _, err := f.program.Eval(map[string]any{
		"node.name": n.Name, "node.labels": n.Labels, "node.allocatable": n.Allocatable, "node.capacity": n.Capacity,
	})
	if err != nil {
		return 0, err
	}
	switch out.(type) {
	case types.Double, types.Int:
		return number(out), nil
	}
	return 0, fmt.Errorf("gives a %s, but must give a number", out.Type())
}
