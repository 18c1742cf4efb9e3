# .ci/run says what each target does, for this file and for the workflow alike.
.PHONY: check platforms test counts race bench emulate interop tidy

check platforms test counts race bench emulate:
	.ci/run $@

# Unlike .ci/run, it fails where honker's package cannot be installed.
interop:
	.ci/interop

# -e, since not every proxy serves what the tests of a dependency need.
tidy:
	@for module in . tests ui/uitest relay/jetstream relay/watermill cmd/honker honkerprom honkerotel honkerpg examples/orders examples/orm examples/metrics examples/service bench tools; do \
		echo "== $$module"; ( cd $$module && go mod tidy -e ) || exit 1; \
	done
