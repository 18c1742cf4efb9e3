#include "textflag.h"

// The kernel preserves the arguments in DI and SI.
TEXT ·clockGettime(SB), NOSPLIT|NOFRAME, $0-0
	MOVL	$228, AX // SYS_clock_gettime
	SYSCALL
	TESTL	DI, DI   // CLOCK_REALTIME is 0
	JNE	done
	MOVQ	·ahead(SB), CX
	ADDQ	CX, 0(SI)
done:
	RET

TEXT ·entry(SB), NOSPLIT, $0-8
	LEAQ	·clockGettime(SB), AX
	MOVQ	AX, ret+0(FP)
	RET
