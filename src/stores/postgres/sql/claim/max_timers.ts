/**
 * How many expired timers of each kind one claim processes, so that a thousand deadlines at once take several short
 * transactions.
 */
export const MAX_TIMERS = 40;
