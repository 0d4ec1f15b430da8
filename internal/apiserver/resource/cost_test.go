package resource_test

import (
	"flag"
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/apiserver/registry"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/scheme"
)

// With -entries each list has so many, or as many as fit into mostBody in protobuf, which is shorter than JSON.
// It may take a second of one processor and 500 MB. Without, two sizes are
// compared by what they allocate, and without -short two longer ones by the processor's time, which differs from run to
// run.
var entries = flag.Int("entries", 0, "the entries of each list, such as 100000; makes the test measure time")

const (
	fewEntries = 100
	mostTime   = time.Second
	mostMemory = 500 << 20
	// mostBody is what the body of a request may have, in bytes.
	mostBody = 3 << 20
	// linear is by how much the work may grow when a list becomes twice as long.
	linear = 3
	// someEntries are compared by time: so many, compared with each other, take 17 ms at 2 ns for each pair.
	someEntries = 3000
	// someTime is below what those take whose work grows with the square of their number.
	someTime = 12 * time.Millisecond
)

// Who may write an object of a kind cannot have the server busy with one of its lists: each list and
// map of each kind is filled, with equal and with different entries, and goes through all that
// creates and updates go through.
func TestCostOfAnObject(t *testing.T) {
	if underRace {
		t.Skip("nothing runs at once here: it is measured without the race detector")
	}
	klog.SetLogger(logr.Discard()) // The library logs what it warns of, and is asked for that here also of what is refused.
	t.Cleanup(klog.ClearLogger)
	kinds := registry.Kinds()
	types := scheme.New(kinds)
	looked := map[string]bool{}
	for _, kind := range kinds {
		t.Run(kind.GroupVersionResource().GroupResource().String(), func(t *testing.T) {
			for _, at := range listsOf(reflect.TypeOf(kind.New()).Elem()) {
				// The template of a pod is the same in each kind that has one.
				if once := at.once(); looked[once] {
					continue
				} else if once != "" {
					looked[once] = true
				}
				t.Run(at.String(), func(t *testing.T) {
					for _, fill := range []filling{{}, {different: true}, {rich: true}, {different: true, rich: true}} {
						measure(t, kind, types, at, fill)
					}
				})
			}
		})
	}
}

func measure(t *testing.T, kind resource.Definition, types *scheme.Set, at place, fill filling) {
	t.Helper()
	what := fmt.Sprintf("%+v", fill)
	if *entries == 0 {
		if !testing.Short() {
			compareTimes(t, what, func(n int) func() { return write(kind, types, copies(object(kind, at, fill, n))) })
		}
		of := func(n int) uint64 { return allocated(write(kind, types, object(kind, at, fill, n))) }
		once, twice := of(fewEntries), of(2*fewEntries)
		if twice < 300<<10 || twice < linear*once {
			return
		}
		// From some number on there may be errors, which is no growth.
		if most := of(4 * fewEntries); most > linear*twice {
			t.Errorf("%s: twice as many entries take %d KB, then %d KB, after %d KB", what, twice>>10, most>>10, once>>10)
		}
		return
	}
	made := object(kind, at, fill, *entries)
	if size, ok := made().(interface{ Size() int }); ok && size.Size() > mostBody {
		fits := int(float64(*entries) * mostBody / float64(size.Size()))
		made = object(kind, at, fill, fits)
		t.Logf("%s: with %d entries, as many as a body may have", what, fits)
	}
	writes := write(kind, types, made)
	runtime.GC() // What filling the object left behind is not its own cost.
	begin := used(t)
	memory := allocated(writes)
	say, took := t.Logf, used(t)-begin
	if took > mostTime || memory > mostMemory {
		say = t.Errorf
	}
	say("%s: took %v and %d MB", what, took.Round(time.Millisecond), memory>>20)
}

// compareTimes finds work that grows with the square of a list and allocates nothing, such as looking each entry up in
// another list. No garbage is collected in a try.
func compareTimes(t *testing.T, what string, of func(n int) func()) {
	t.Helper()
	least := func(n, tries int) time.Duration {
		best := time.Hour
		for range tries {
			f := of(n)
			percent := debug.SetGCPercent(-1)
			begin := used(t)
			f()
			best = min(best, used(t)-begin)
			debug.SetGCPercent(percent)
		}
		return best
	}
	if least(someEntries, 1) < someTime {
		return
	}
	most := least(someEntries, 4)
	if few := least(someEntries/5, 4); most > someTime && most > 9*few {
		t.Errorf("%s: five times as many entries take %v, after %v", what, most, few)
	}
}

// copies makes one object, and others as copies of it.
func copies(made func() apiruntime.Object) func() apiruntime.Object {
	obj := made()
	return func() apiruntime.Object { return obj.DeepCopyObject() }
}

// used is the time of processors that this process has had.
func used(t *testing.T) time.Duration {
	t.Helper()
	var of unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &of)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(of.Utime.Nano() + of.Stime.Nano())
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// object returns what makes an object whose list at that place has so many entries.
func object(kind resource.Definition, at place, fill filling, n int) func() apiruntime.Object {
	return func() apiruntime.Object {
		obj := kind.New()
		at.put(reflect.ValueOf(obj).Elem(), fill, n)
		m := obj.(metav1.Object)
		m.SetName("x")
		m.SetResourceVersion("1")
		if !kind.ClusterScoped {
			m.SetNamespace("ns")
		}
		return obj
	}
}

// write returns what has an object go through all that a create, an update and one of the status go through. The
// objects themselves are made before.
func write(kind resource.Definition, types *scheme.Set, made func() apiruntime.Object) func() {
	create, updates := kind.Strategies(types.Public)
	info := &request.RequestInfo{IsResourceRequest: true, Resource: kind.Plural, APIGroup: kind.GroupVersion.Group}
	ctx := request.WithRequestInfo(request.WithNamespace(request.NewContext(), "ns"), info)
	obj, pairs := made(), make([][2]apiruntime.Object, len(updates))
	for i := range pairs {
		pairs[i] = [2]apiruntime.Object{made(), made()}
	}
	return func() {
		if kind.Default != nil {
			kind.Default(obj)
		}
		create.PrepareForCreate(ctx, obj)
		if !refused(kind, create.Validate(ctx, obj)) {
			kept(create.WarningsOnCreate(ctx, obj))
		}
		create.Canonicalize(obj)
		for i, update := range updates {
			now, old := pairs[i][0], pairs[i][1]
			if kind.Default != nil {
				kind.Default(now)
				kind.Default(old)
			}
			update.PrepareForUpdate(ctx, now, old)
			if !refused(kind, update.ValidateUpdate(ctx, now, old)) {
				kept(update.WarningsOnUpdate(ctx, now, old))
			}
			update.Canonicalize(now)
		}
	}
}

// refused has the client told what is wrong, and reports whether there is so much that nothing else is looked at.
func refused(kind resource.Definition, errs field.ErrorList) bool {
	if len(errs) == 0 {
		return false
	}
	kept(apierrors.NewInvalid(kind.GroupVersionKind().GroupKind(), "x", errs).Error())
	return slices.ContainsFunc(errs, func(e *field.Error) bool { return e.Type == field.ErrorTypeTooMany })
}

var sink any

// kept has the compiler leave what is not used.
func kept(v any) { sink = v }

// Every list is found, also those below pointers and lists, and is filled as asked.
func TestListsAreFound(t *testing.T) {
	type leaf struct {
		Name  string
		Hosts []string
	}
	type thing struct {
		Labels map[string]string
		Deep   *struct{ Leaves []leaf }
	}
	var found []string
	for _, at := range listsOf(reflect.TypeFor[thing]()) {
		found = append(found, at.String())
		var filled thing
		at.put(reflect.ValueOf(&filled).Elem(), filling{different: true, rich: true}, 3)
		text := fmt.Sprintf("%+v", filled)
		if filled.Deep != nil {
			text = fmt.Sprintf("%+v", *filled.Deep)
		}
		if !strings.Contains(text, "k2") {
			t.Errorf("%s: %s", at, text)
		}
	}
	if got := strings.Join(found, " "); got != "Labels Deep.Leaves Deep.Leaves.Hosts" {
		t.Errorf("found %s", got)
	}
}
