package hostile

import (
	"flag"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// `go test ./test/hostile -seeds 300 -random 7` is a quick search without the
// fuzzer, which takes its time to see what each input reaches.
var (
	perKind = flag.Int("seeds", 3, "how many random inputs to begin with for each kind")
	chance  = flag.Uint64("random", 1, "which random inputs")
	soak    = flag.Duration("soak", 0, "how long to disturb a control plane, at least")
)

func TestMain(m *testing.M) {
	// What is refused is logged by the thousand.
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	_ = flags.Set("logtostderr", "false")
	_ = flags.Set("stderrthreshold", "FATAL")
	klog.SetOutput(io.Discard)
	flag.Parse()
	// client-go knows all other kinds.
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	stopServer()
	os.Exit(code)
}

// scripts are the fuzzer's first inputs: each of the kinds as it is, and with
// what some bytes make of it.
func scripts() (out [][]byte) {
	const kinds = 60 // a few more than there are
	random := rand.New(rand.NewPCG(*chance, 2))
	for k := range kinds {
		out = append(out, []byte{byte(k)})
		for n := range *perKind {
			script := []byte{byte(k), byte(n)}
			for range 40 << (n % 3) {
				script = append(script, byte(random.Uint32()))
			}
			out = append(out, script)
		}
	}
	return out
}

// knowledge is the lore of all seeds.
var knowledge = sync.OnceValue(func() *lore {
	seeds, err := loadSeeds()
	if err != nil {
		panic(err)
	}
	words, values := map[string]bool{}, map[string]map[string]any{}
	for _, objects := range seeds {
		for _, obj := range objects {
			for _, s := range slots(obj, nil, func(any) {}) {
				if s.twin == nil {
					if values[s.name] == nil {
						values[s.name] = map[string]any{}
					}
					values[s.name][string(encode(s.value))] = s.value
				}
				switch v := s.value.(type) {
				case string:
					words[v] = true
				case map[string]any:
					for key := range v {
						words[key] = true
					}
				}
			}
		}
	}
	out := &lore{words: sortedKeys(words), values: map[string][]any{}}
	for name, different := range values {
		for _, text := range sortedKeys(different) {
			out.values[name] = append(out.values[name], different[text])
		}
	}
	return out
})

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func itoa(i int) string { return strconv.Itoa(i) }
