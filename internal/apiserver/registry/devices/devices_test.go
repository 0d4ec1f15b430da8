package devices

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// says fails unless the errors are one with the text in it, or none when the text is empty.
func says(t *testing.T, name string, errs field.ErrorList, text string) {
	t.Helper()
	if text == "" && len(errs) > 0 || text != "" && (len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), text)) {
		t.Errorf("%s: %v, want %q", name, errs, text)
	}
}

func choosing(expression string) []resourcev1.DeviceSelector {
	return []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
}

func opaque(driver, parameters string) resourcev1.DeviceConfiguration {
	return resourcev1.DeviceConfiguration{Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(parameters)}}}
}

func TestValidateClass(t *testing.T) {
	type class = resourcev1.DeviceClass
	for name, c := range map[string]struct {
		change func(*class)
		want   string
	}{
		"good": {func(c *class) {
			c.Spec.Selectors = choosing(`device.driver == "a.example.com"`)
			c.Spec.Config = []resourcev1.DeviceClassConfiguration{{DeviceConfiguration: opaque("a.example.com", `{"x":1}`)}}
			c.Spec.ExtendedResourceName = new("example.com/gpu")
		}, ""},
		"no expression":     {func(c *class) { c.Spec.Selectors = []resourcev1.DeviceSelector{{}} }, "spec.selectors[0].cel: Required value"},
		"no CEL":            {func(c *class) { c.Spec.Selectors = choosing("device.") }, "spec.selectors[0].cel.expression: Invalid value: \"device.\": compilation failed"},
		"not a bool":        {func(c *class) { c.Spec.Selectors = choosing("device.driver") }, "must evaluate to bool"},
		"a long expression": {func(c *class) { c.Spec.Selectors = choosing(strings.Repeat(" ", 10241) + "true") }, "Too long: may not be more than 10240"},
		"a costly expression": {func(c *class) {
			c.Spec.Selectors = choosing(strings.Repeat(`device.attributes["a"].all(k, `, 6) + "true" + strings.Repeat(")", 6))
		}, "too complex, exceeds cost limit"},
		"many selectors":   {func(c *class) { c.Spec.Selectors = make([]resourcev1.DeviceSelector, 33) }, "spec.selectors: Too many: 33: must have at most 32 items"},
		"no configuration": {func(c *class) { c.Spec.Config = make([]resourcev1.DeviceClassConfiguration, 1) }, "spec.config[0].opaque: Required value"},
		"no JSON": {func(c *class) {
			c.Spec.Config = []resourcev1.DeviceClassConfiguration{{DeviceConfiguration: opaque("a", "{")}}
		}, "error parsing data as JSON"},
		"a list": {func(c *class) {
			c.Spec.Config = []resourcev1.DeviceClassConfiguration{{DeviceConfiguration: opaque("a", "[]")}}
		}, "must be a valid JSON object"},
		"a driver's name": {func(c *class) {
			c.Spec.Config = []resourcev1.DeviceClassConfiguration{{DeviceConfiguration: opaque("a_", "{}")}}
		}, "spec.config[0].opaque.driver: Invalid value"},
		"a resource of ours": {func(c *class) { c.Spec.ExtendedResourceName = new("cpu") }, "spec.extendedResourceName: Invalid value: \"cpu\": must be a valid extended resource name"},
	} {
		c1 := &class{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
		c.change(c1)
		says(t, name, ValidateClass(c1, nil), c.want)
	}
}

func wanted(name string, change func(*resourcev1.ExactDeviceRequest)) resourcev1.DeviceRequest {
	r := resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpus", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}
	if change != nil {
		change(r.Exactly)
	}
	return r
}

func TestValidateClaim(t *testing.T) {
	type spec = resourcev1.DeviceClaim
	type exact = resourcev1.ExactDeviceRequest
	with := func(requests ...resourcev1.DeviceRequest) func(*spec) {
		return func(s *spec) { s.Requests = requests }
	}
	attribute := resourcev1.FullyQualifiedName("a.example.com/bus")
	for name, c := range map[string]struct {
		change func(*spec)
		want   string
	}{
		"good": {func(s *spec) {
			s.Requests = append(s.Requests, resourcev1.DeviceRequest{Name: "b", FirstAvailable: []resourcev1.DeviceSubRequest{
				{Name: "x", DeviceClassName: "gpus", AllocationMode: "All"}, {Name: "y", DeviceClassName: "gpus", AllocationMode: "ExactCount", Count: 1}}})
			s.Constraints = []resourcev1.DeviceConstraint{{Requests: []string{"a", "b/x"}, MatchAttribute: &attribute}}
			s.Config = []resourcev1.DeviceClaimConfiguration{{Requests: []string{"b"}, DeviceConfiguration: opaque("d", "{}")}}
		}, ""},
		"nothing":      {with(), ""},
		"no name":      {with(wanted("", nil)), "spec.devices.requests[0].name: Invalid value"},
		"twice":        {with(wanted("a", nil), wanted("a", nil)), `spec.devices.requests[1]: Duplicate value: "a"`},
		"many":         {with(make([]resourcev1.DeviceRequest, 33)...), "spec.devices.requests: Too many: 33"},
		"neither":      {with(resourcev1.DeviceRequest{Name: "a"}), "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required"},
		"both":         {func(s *spec) { s.Requests[0].FirstAvailable = make([]resourcev1.DeviceSubRequest, 1) }, "but multiple fields are set"},
		"no class":     {with(wanted("a", func(e *exact) { e.DeviceClassName = "" })), "spec.devices.requests[0].exactly.deviceClassName: Required value"},
		"none":         {with(wanted("a", func(e *exact) { e.Count = 0 })), "spec.devices.requests[0].exactly.count: Invalid value: 0: must be greater than zero"},
		"all of two":   {with(wanted("a", func(e *exact) { e.AllocationMode, e.Count = "All", 2 })), "must not be specified when allocationMode is 'All'"},
		"another mode": {with(wanted("a", func(e *exact) { e.AllocationMode = "Some" })), `supported values: "All", "ExactCount"`},
		"a toleration": {with(wanted("a", func(e *exact) { e.Tolerations = []resourcev1.DeviceToleration{{Operator: "Exists", Value: "x"}} })), "tolerations[0].value: Invalid value: \"x\": must be empty for operator `Exists`"},
		"an effect":    {with(wanted("a", func(e *exact) { e.Tolerations = []resourcev1.DeviceToleration{{Operator: "Equal", Effect: "x"}} })), `supported values: "NoExecute", "NoSchedule", "None"`},
		"no such request": {func(s *spec) {
			s.Constraints = []resourcev1.DeviceConstraint{{Requests: []string{"a/x"}, MatchAttribute: &attribute}}
		}, "must be the name of a request in the claim"},
		"no constraint": {func(s *spec) { s.Constraints = []resourcev1.DeviceConstraint{{}} }, "spec.devices.constraints[0]: Required value"},
		"a name of no domain": {func(s *spec) {
			s.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: new(resourcev1.FullyQualifiedName("bus"))}}
		}, "a fully qualified name must be a domain and a name"},
	} {
		s := &resourcev1.ResourceClaimSpec{Devices: spec{Requests: []resourcev1.DeviceRequest{wanted("a", nil)}}}
		c.change(&s.Devices)
		says(t, name, validateClaimSpec(s, specPath), c.want)
	}
	claimed := &resourcev1.ResourceClaimSpec{Devices: spec{Requests: []resourcev1.DeviceRequest{{Exactly: &exact{Tolerations: make([]resourcev1.DeviceToleration, 1)}}}}}
	defaultClaim(claimed)
	if e := claimed.Devices.Requests[0].Exactly; e.AllocationMode != "ExactCount" || e.Count != 1 || e.Tolerations[0].Operator != "Equal" {
		t.Errorf("defaults: %+v", e)
	}
	made := &resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: *claimed}}
	made.Spec.Spec.Devices.Requests = nil
	says(t, "a template with a name", ValidateTemplate(made), "spec.metadata.Name: Forbidden: cannot be set")
	labelled := made.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	says(t, "a template of before the rules, with a label", ValidateTemplateUpdate(labelled, made), "")
	labelled.Spec.Name = "y"
	says(t, "another template", ValidateTemplateUpdate(labelled, made), "spec: Invalid value")
}

func TestValidateStatus(t *testing.T) {
	type claim = resourcev1.ResourceClaim
	result := resourcev1.DeviceRequestAllocationResult{Request: "a", Driver: "d.example.com", Pool: "n1", Device: "gpu-0"}
	pod := resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: "p", UID: "1"}
	report := resourcev1.AllocatedDeviceStatus{Driver: "d.example.com", Pool: "n1", Device: "gpu-0"}
	bound := func() *claim {
		c := &claim{}
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{wanted("a", nil)}
		c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{result}}}
		c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{pod}
		c.Status.Devices = []resourcev1.AllocatedDeviceStatus{report}
		return c
	}
	none := &claim{}
	for name, c := range map[string]struct {
		change func(*claim)
		old    *claim
		want   string
	}{
		"good":              {func(*claim) {}, none, ""},
		"the same":          {func(*claim) {}, bound(), ""},
		"freed":             {func(c *claim) { c.Status = resourcev1.ResourceClaimStatus{} }, bound(), ""},
		"changed":           {func(c *claim) { c.Status.Allocation.Devices.Results[0].Device = "gpu-1"; c.Status.Devices = nil }, bound(), "status.allocation: Invalid value"},
		"for nothing":       {func(c *claim) { c.Status.Allocation, c.Status.Devices = nil, nil }, bound(), "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"},
		"of a deleted one":  {func(c *claim) { c.DeletionTimestamp = new(metav1.Now()) }, none, "new entries may not be added while"},
		"for nobody":        {func(c *claim) { c.Status.ReservedFor[0].Name = "" }, none, "status.reservedFor[0].name: Required value"},
		"for one twice":     {func(c *claim) { c.Status.ReservedFor = append(c.Status.ReservedFor, pod) }, none, `status.reservedFor[1]: Duplicate value: "1"`},
		"another's device":  {func(c *claim) { c.Status.Devices[0].Device = "gpu-1" }, none, "status.devices[0]: Invalid value: \"d.example.com/n1/gpu-1\": must be an allocated device in the claim"},
		"another's request": {func(c *claim) { c.Status.Allocation.Devices.Results[0].Request = "b" }, none, "status.allocation.devices.results[0].request: Invalid value"},
		"no pool":           {func(c *claim) { c.Status.Allocation.Devices.Results[0].Pool = "" }, none, "results[0].pool: Required value"},
		"a share":           {func(c *claim) { c.Status.Devices = nil; c.Status.Allocation.Devices.Results[0].ShareID = new(pod.UID) }, none, "error validating uid"},
		"an address": {func(c *claim) {
			c.Status.Devices[0].NetworkData = &resourcev1.NetworkDeviceData{IPs: []string{"10.0.0.1"}}
		}, none, "status.devices[0].networkData.ips[0]: Invalid value"},
		"data":               {func(c *claim) { c.Status.Devices[0].Data = &runtime.RawExtension{Raw: []byte("1")} }, none, "status.devices[0].data: Invalid value"},
		"conditions halfway": {func(c *claim) { c.Status.Allocation.Devices.Results[0].BindingConditions = []string{"x"} }, none, "bindingFailureConditions are required to use bindingConditions"},
	} {
		next := bound()
		c.change(next)
		says(t, name, ValidateStatus(next, c.old), c.want)
	}
	freed := bound()
	freed.Status.Allocation = nil
	dropReleased(&freed.Status, &bound().Status)
	if freed.Status.Devices != nil {
		t.Errorf("of a claim without devices drivers still say %+v", freed.Status.Devices)
	}
}

func TestValidateSlice(t *testing.T) {
	type slice = resourcev1.ResourceSlice
	quantity := resource.MustParse
	policy := func(p *resourcev1.CapacityRequestPolicy) func(*slice) {
		return func(s *slice) {
			s.Spec.Devices[0].AllowMultipleAllocations = new(true)
			s.Spec.Devices[0].Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"m": {Value: quantity("8"), RequestPolicy: p}}
		}
	}
	steps := func(low, high, step, usual string) *resourcev1.CapacityRequestPolicy {
		return &resourcev1.CapacityRequestPolicy{Default: new(quantity(usual)), ValidRange: &resourcev1.CapacityRequestPolicyRange{
			Min: new(quantity(low)), Max: new(quantity(high)), Step: new(quantity(step))}}
	}
	good := func() *slice {
		s := &slice{}
		s.Spec = resourcev1.ResourceSliceSpec{Driver: "d.example.com", NodeName: new("n1"), Pool: resourcev1.ResourcePool{Name: "n1", ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "gpu-0", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: new("a")}}}}}
		return s
	}
	attribute := func(name string, a resourcev1.DeviceAttribute) func(*slice) {
		return func(s *slice) {
			s.Spec.Devices[0].Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{resourcev1.QualifiedName(name): a}
		}
	}
	for name, c := range map[string]struct {
		change func(*slice)
		want   string
	}{
		"good":    {func(*slice) {}, ""},
		"nowhere": {func(s *slice) { s.Spec.NodeName = nil }, "spec: Required value: exactly one of `nodeName`"},
		"twice":   {func(s *slice) { s.Spec.AllNodes = new(true) }, "spec: Invalid value: \"{`nodeName`, `allNodes`}\""},
		"not all": {func(s *slice) { s.Spec.NodeName, s.Spec.AllNodes = nil, new(false) }, "spec.allNodes: Invalid value: false: must be either unset or set to true"},
		"two terms": {func(s *slice) {
			s.Spec.NodeName, s.Spec.NodeSelector = nil, &corev1.NodeSelector{NodeSelectorTerms: make([]corev1.NodeSelectorTerm, 2)}
		}, "must have exactly one node selector term"},
		"no pool":             {func(s *slice) { s.Spec.Pool.Name = "" }, "spec.pool.name: Required value"},
		"a pool in a pool":    {func(s *slice) { s.Spec.Pool.Name = "a/b" }, ""},
		"no slices":           {func(s *slice) { s.Spec.Pool.ResourceSliceCount = 0 }, "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero"},
		"a past generation":   {func(s *slice) { s.Spec.Pool.Generation = -1 }, "must be greater than or equal to zero"},
		"a device's name":     {func(s *slice) { s.Spec.Devices[0].Name = "GPU" }, "spec.devices[0].name: Invalid value"},
		"a device twice":      {func(s *slice) { s.Spec.Devices = append(s.Spec.Devices, s.Spec.Devices[0]) }, `spec.devices[1]: Duplicate value: "gpu-0"`},
		"many devices":        {func(s *slice) { s.Spec.Devices = make([]resourcev1.Device, 129) }, "spec.devices: Too many: 129: must have at most 128 items"},
		"devices of its node": {func(s *slice) { s.Spec.Devices[0].AllNodes = new(true) }, "can only be set if `perDeviceNodeSelection` is set to true"},
		"devices of none":     {func(s *slice) { s.Spec.NodeName, s.Spec.PerDeviceNodeSelection = nil, new(true) }, "spec.devices[0]: Required value: exactly one of `nodeName`"},
		"counters as well": {func(s *slice) {
			s.Spec.SharedCounters = []resourcev1.CounterSet{{Name: "c", Counters: map[string]resourcev1.Counter{"m": {}}}}
		}, "only one of `sharedCounters` or `devices` is allowed"},
		"no counters":         {func(s *slice) { s.Spec.Devices, s.Spec.SharedCounters = nil, []resourcev1.CounterSet{{}} }, "spec.sharedCounters[0].counters: Required value"},
		"no value":            {attribute("a", resourcev1.DeviceAttribute{}), "spec.devices[0].attributes[a]: Invalid value: \"\": exactly one value must be specified"},
		"two values":          {attribute("a", resourcev1.DeviceAttribute{IntValue: new(int64(1)), BoolValue: new(true)}), "exactly one value must be specified"},
		"a version":           {attribute("a", resourcev1.DeviceAttribute{VersionValue: new("1.2")}), "must be a string compatible with semver.org spec 2.0.0"},
		"a long string":       {attribute("a", resourcev1.DeviceAttribute{StringValue: new(strings.Repeat("x", 65))}), "spec.devices[0].attributes[a].string: Too long"},
		"an attribute's name": {attribute("a-b", resourcev1.DeviceAttribute{IntValue: new(int64(1))}), "spec.devices[0].attributes: Invalid value: \"a-b\""},
		"no domain":           {attribute("/b", resourcev1.DeviceAttribute{IntValue: new(int64(1))}), "the domain must not be empty"},
		"a taint":             {func(s *slice) { s.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "a"}} }, "spec.devices[0].taints[0].effect: Required value"},
		"a policy of one":     {func(s *slice) { policy(steps("1", "8", "1", "1"))(s); s.Spec.Devices[0].AllowMultipleAllocations = nil }, "allowMultipleAllocations must be true"},
		"a good policy":       {policy(steps("2", "8", "2", "4")), ""},
		"a default too small": {policy(steps("2", "8", "2", "1")), "default is less than min: 2"},
		"off the step":        {policy(steps("2", "8", "2", "3")), "value is not a multiple of a given step (2) from (2)"},
		"no step":             {policy(steps("2", "8", "0", "4")), "validRange.step: Invalid value: \"0\": must be greater than zero"},
		"more than there is":  {policy(steps("2", "10", "2", "4")), "max is larger than capacity value: 8"},
		"unordered values":    {policy(&resourcev1.CapacityRequestPolicy{Default: new(quantity("2")), ValidValues: []resource.Quantity{quantity("2"), quantity("1")}}), "values must be sorted in ascending order"},
		"no default":          {policy(&resourcev1.CapacityRequestPolicy{ValidValues: []resource.Quantity{quantity("2")}}), "required when validValues is defined"},
		"another default":     {policy(&resourcev1.CapacityRequestPolicy{Default: new(quantity("3")), ValidValues: []resource.Quantity{quantity("2")}}), "default value is not valid according to the requestPolicy"},
	} {
		s := good()
		c.change(s)
		says(t, name, ValidateSlice(s, nil), c.want)
	}
	moved := good()
	moved.Spec.NodeName = new("n2")
	says(t, "to another node", ValidateSlice(moved, good()), "spec.nodeName: Invalid value: \"n2\": field is immutable")
	later := good()
	later.Spec.SkipNodeOperations = []resourcev1.SkipNodeOperation{"*"}
	later.Spec.Devices[0].Attributes["list"] = resourcev1.DeviceAttribute{IntValues: []int64{1}}
	dropLater(&later.Spec)
	says(t, "a list", ValidateSlice(later, nil), "spec.devices[0].attributes[list]: Invalid value: \"\": exactly one value must be specified")
	if later.Spec.SkipNodeOperations != nil {
		t.Error("a field that nothing acts on is kept")
	}
}

// A DaemonSet whose pods claim devices by a template makes a claim for each node: all with the same selectors.
func TestClaimsOfATemplateCompileItsSelectorsOnce(t *testing.T) {
	const text = `device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model == "a100"`
	check := func() {
		if errs := validateExpression(text, field.NewPath("expression"), false); len(errs) > 0 {
			t.Fatal(errs)
		}
	}
	check()
	if allocations := testing.AllocsPerRun(20, check); allocations > 10 {
		t.Errorf("a selector that is known makes %.0f things", allocations)
	}
	if errs := validateExpression("device.nonsense", field.NewPath("expression"), false); len(errs) == 0 {
		t.Error("nonsense is taken")
	}
}
